// The network is drawn already; here boxes are selected, searched and coloured by other numbers.
import { matcher } from "./glob";
import { type Spoken, current, onChange, say } from "./language";
import { setUpOpening } from "./opening";
import { word } from "./words";
import { setUpZoom } from "./zoom";

export interface NodeSpec {
  name: string;
  op: string;
  inputs: string[];
  outputs: string[];
  value: string | null;
  facts: [Spoken, Spoken][];
}

export interface NetworkSpec {
  id: string;
  kind: string;
  nodes: NodeSpec[];
  /** Places of the nodes in each box that is drawn. */
  boxes: number[][];
  /** What boxes can show: of each the number as it is written, and its class. */
  views: { name: Spoken; boxes: [string, number | null][] }[];
  /** What folded blocks are made of, by the number of their box. */
  opened: Record<string, OpenedSpec>;
}

export interface OpenedSpec {
  size: [number, number];
  edges: string;
  /** Left, top, name, number, class, operations, mark, and the node that it is known by. */
  boxes: [number, number, string, string, number | null, string, string, string][];
}

export function setUpNetworks(specs: NetworkSpec[]): void {
  for (const spec of specs) {
    const figure = document.getElementById(`network-${spec.id}`);
    if (figure && spec.boxes.length) setUp(figure, spec);
  }
}

function setUp(figure: HTMLElement, spec: NetworkSpec): void {
  const tools = document.createElement("div");
  tools.className = "tools";
  const find = document.createElement("input");
  find.type = "search";
  const count = document.createElement("output");
  const tell = (): void => {
    find.placeholder = word("search", current());
    find.setAttribute("aria-label", word("find", current()));
    find.title = word("keys", current());
  };
  tell();
  onChange(tell);
  let hits: string[] = [];
  find.addEventListener("input", () => {
    hits = search(figure, spec, find.value);
    count.textContent = find.value.trim() ? word("found", current(), { n: hits.length }) : "";
  });
  find.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && hits[0] !== undefined) go(hits[0]);
  });
  tools.append(find, count);
  if (spec.views.length > 1) tools.append(views(figure, spec));
  figure.querySelector(".spread")?.before(tools);
  setUpZoom(figure, tools);
  setUpOpening(figure, spec);
  setUpKeys(figure, spec, find);
}

/** Selects a node everywhere. */
export function go(name: string): void {
  location.hash = `#node=${encodeURIComponent(name)}`;
}

function views(figure: HTMLElement, spec: NetworkSpec): HTMLElement {
  const group = document.createElement("span");
  group.className = "views";
  group.setAttribute("role", "group");
  const buttons = spec.views.map((view) => {
    const button = document.createElement("button");
    button.type = "button";
    button.addEventListener("click", () => show(view));
    group.append(button);
    return button;
  });
  const show = (wanted: NetworkSpec["views"][number]): void => {
    spec.views.forEach((view, at) => buttons[at]?.setAttribute("aria-pressed", String(view === wanted)));
    for (const box of figure.querySelectorAll<SVGElement>(".graph > .box[data-box]")) {
      const [text, shade] = wanted.boxes[Number(box.dataset.box)] ?? ["", null];
      for (let old = 0; old < 6; old++) box.classList.toggle(`f${old}`, old === shade);
      const value = box.querySelector("text.value");
      if (value) value.textContent = text;
    }
  };
  const tell = (): void => {
    group.setAttribute("aria-label", word("show", current()));
    spec.views.forEach((view, at) => buttons[at]?.replaceChildren(say(view.name, current())));
  };
  tell();
  onChange(tell);
  const first = spec.views[0];
  if (first) show(first);
  return group;
}

/** `/` finds, `n` and `p` go to the next and previous culprit, `[` and `]` to what is read and who reads it. */
function setUpKeys(figure: HTMLElement, spec: NetworkSpec, find: HTMLInputElement): void {
  addEventListener("keydown", (event) => {
    const typing = event.target instanceof HTMLElement && /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/") {
      event.preventDefault();
      find.focus();
      return;
    }
    const chosen = figure.querySelector<SVGElement>(".graph .box.selected");
    if (event.key === "n" || event.key === "p") {
      const guilty = [...figure.querySelectorAll<SVGElement>(".graph .box.culprit")];
      const step = event.key === "n" ? 1 : -1;
      const from = chosen ? guilty.indexOf(chosen) : step > 0 ? -1 : 0;
      const next = guilty[(from + step + guilty.length) % guilty.length];
      if (next) go(names(spec, Number(next.dataset.box))[0] ?? "");
    } else if ((event.key === "[" || event.key === "]") && chosen) {
      const members = names(spec, Number(chosen.dataset.box));
      const { before, after } = neighbours(spec, members);
      const next = (event.key === "[" ? before : after)[0];
      if (next !== undefined) go(next);
    }
  });
}

/** Nodes outside of a box that it reads from, and that read from it. */
export function neighbours(spec: NetworkSpec, members: readonly string[]): { before: string[]; after: string[] } {
  const inside = new Set(members);
  const read = new Set<string>(), written = new Set<string>();
  for (const node of spec.nodes) {
    if (!inside.has(node.name)) continue;
    for (const tensor of node.inputs) read.add(tensor);
    for (const tensor of node.outputs) written.add(tensor);
  }
  const others = spec.nodes.filter((node) => !inside.has(node.name));
  return {
    before: others.filter((node) => node.outputs.some((tensor) => read.has(tensor))).map((node) => node.name),
    after: others.filter((node) => node.inputs.some((tensor) => written.has(tensor))).map((node) => node.name),
  };
}

/** Marks the boxes that hold a node of that name; the names themselves. */
function search(figure: HTMLElement, spec: NetworkSpec, pattern: string): string[] {
  const wanted = Boolean(pattern.trim()), fits = matcher(pattern);
  const hits: string[] = [];
  for (const box of figure.querySelectorAll<SVGElement>(".box[data-box]")) {
    const own = names(spec, Number(box.dataset.box)).filter((name) => wanted && fits(name));
    box.classList.toggle("found", own.length > 0);
    box.classList.toggle("aside", wanted && own.length === 0);
    hits.push(...own);
  }
  return hits;
}

function names(spec: NetworkSpec, box: number): string[] {
  return (spec.boxes[box] ?? []).map((at) => spec.nodes[at]?.name ?? "");
}

/** The box that holds a node, and who else is in it. */
export function boxOf(specs: readonly NetworkSpec[], name: string): { spec: NetworkSpec; box: number; members: string[] } | null {
  for (const spec of specs)
    for (let box = 0; box < spec.boxes.length; box++) {
      const members = names(spec, box);
      if (members.includes(name)) return { spec, box, members };
    }
  return null;
}

/** Shows everywhere what is selected: in the graph, in charts and strips. */
export function mark(specs: readonly NetworkSpec[], name: string | null): void {
  for (const old of document.querySelectorAll(".selected")) old.classList.remove("selected");
  if (name === null) return;
  const found = boxOf(specs, name);
  const inside = new Set(found?.members ?? [name]);
  if (found) document.querySelector(`.network .box[data-box="${found.box}"]`)?.classList.add("selected");
  for (const part of document.querySelectorAll<SVGElement>(".opened .box")) if (part.dataset.node === name) part.classList.add("selected");
  for (const link of document.querySelectorAll<SVGAElement>(".plot a, .cells a")) {
    const target = decodeURIComponent((link.getAttribute("href") ?? "").replace(/^#node=/, ""));
    if (inside.has(target)) link.classList.add("selected");
  }
}
