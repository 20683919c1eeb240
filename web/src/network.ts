// The network is drawn already; here boxes are selected and searched.
import { matcher } from "./glob";
import { type Spoken, current, onChange } from "./language";
import { word } from "./words";

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
  };
  tell();
  onChange(tell);
  let hits: string[] = [];
  find.addEventListener("input", () => {
    hits = search(figure, spec, find.value);
    count.textContent = find.value.trim() ? word("found", current(), { n: hits.length }) : "";
  });
  find.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && hits[0] !== undefined) location.hash = `#node=${encodeURIComponent(hits[0])}`;
  });
  tools.append(find, count);
  figure.querySelector(".spread")?.before(tools);
}

/** Marks the boxes that hold a node of that name; the names themselves. */
function search(figure: HTMLElement, spec: NetworkSpec, pattern: string): string[] {
  const wanted = Boolean(pattern.trim()), fits = matcher(pattern);
  const hits: string[] = [];
  for (const box of figure.querySelectorAll<SVGElement>(".box")) {
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
export function boxOf(specs: readonly NetworkSpec[], name: string): { box: number; members: string[] } | null {
  for (const spec of specs)
    for (let box = 0; box < spec.boxes.length; box++) {
      const members = names(spec, box);
      if (members.includes(name)) return { box, members };
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
  for (const link of document.querySelectorAll<SVGAElement>(".plot a, .cells a")) {
    const target = decodeURIComponent((link.getAttribute("href") ?? "").replace(/^#node=/, ""));
    if (inside.has(target)) link.classList.add("selected");
  }
}
