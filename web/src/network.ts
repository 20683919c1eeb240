// The network as a graph: boxes coloured by one number, moved by dragging, wheel, buttons and keys.
import { textOf } from "./cells";
import { DECIBELS, badness, shadeAt } from "./colours";
import { matcher } from "./glob";
import { type Grouped, closedAtFirst, grouped, scopesOf } from "./groups";
import { type Spoken, current, onChange } from "./language";
import { edgesOf, layOut } from "./layout";
import { legendOf } from "./legend";
import { onceInView } from "./viewing";
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
  higherIsBetter: boolean;
  /** From which on a value is as good as can be; null where the best one of the network is. */
  best: number | null;
  nodes: NodeSpec[];
}

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 190, HEIGHT = 40, GAP_X = 24, GAP_Y = 28;
const LONGEST_LABEL = 26;
// More boxes than this are hard to read at once; scopes are closed until there are fewer.
const MANY_BOXES = 160;
const ZOOM = 1.25, SMALLEST = 0.02, LARGEST = 4;
// Shown whole at first when the text is still readable then.
const READABLE = 0.45;

export function setUpNetworks(specs: NetworkSpec[]): void {
  for (const spec of specs) {
    const figure = document.getElementById(`network-${spec.id}`);
    if (figure && spec.nodes.length) new NetworkView(figure, spec);
  }
}

class NetworkView {
  private readonly svg = document.createElementNS(SVG, "svg");
  private readonly world = document.createElementNS(SVG, "g");
  private readonly byName: Map<string, NodeSpec>;
  private readonly limits: readonly [number, number];
  private closed: Set<string>;
  private places = new Map<string, { x: number; y: number }>();
  private scale = 1;
  private offset = { x: 0, y: 0 };

  constructor(figure: HTMLElement, private readonly spec: NetworkSpec) {
    this.byName = new Map(spec.nodes.map((node) => [node.name, node]));
    const values = spec.nodes.map((node) => numberOf(node.value)).filter((v): v is number => v !== null && Number.isFinite(v));
    const [low, high] = values.reduce<[number, number]>(([low, high], v) => [Math.min(low, v), Math.max(high, v)], [Infinity, -Infinity]);
    this.limits = spec.kind === "decibels" ? DECIBELS : spec.best === null || !values.length ? [low, high] : spec.higherIsBetter ? [Math.min(low, spec.best), spec.best] : [spec.best, Math.max(high, spec.best)];
    this.closed = closedAtFirst(this.boxes(), MANY_BOXES);
    this.svg.append(this.world);
    this.svg.setAttribute("tabindex", "0");
    this.svg.setAttribute("role", "group");
    const caption = figure.querySelector("figcaption");
    const tell = (): void => this.svg.setAttribute("aria-label", caption ? textOf(caption) : "");
    tell();
    onChange(tell);
    figure.append(this.tools(), ...legendOf(this.limits, this.spec.kind, this.spec.higherIsBetter), this.svg);
    this.listen();
    onceInView(figure, () => {
      this.draw();
      this.start();
      onChange(() => this.draw());
      new ResizeObserver(() => this.move()).observe(this.svg);
    });
  }

  private boxes(): { id: string; inputs: string[]; outputs: string[] }[] {
    return this.spec.nodes.map((node) => ({ id: node.name, inputs: node.inputs, outputs: node.outputs }));
  }

  private tools(): HTMLElement {
    const tools = document.createElement("div");
    tools.className = "tools";
    const add = (key: Parameters<typeof word>[0], text: string, act: () => void): void => {
      const button = document.createElement("button");
      button.type = "button";
      const tell = (): void => {
        button.textContent = text || word(key, current());
        button.setAttribute("aria-label", word(key, current()));
        button.title = word(key, current());
      };
      tell();
      onChange(tell);
      button.addEventListener("click", act);
      tools.append(button);
    };
    const find = document.createElement("input");
    find.type = "search";
    const tell = (): void => {
      find.placeholder = word("search", current());
      find.setAttribute("aria-label", word("find", current()));
    };
    tell();
    onChange(tell);
    find.addEventListener("input", () => this.find(find.value));
    tools.append(find);
    add("zoomIn", "+", () => this.zoom(ZOOM));
    add("zoomOut", "−", () => this.zoom(1 / ZOOM));
    add("whole", "", () => this.showAll());
    if (this.spec.nodes.some((node) => scopesOf(node.name).length)) {
      add("expand", "", () => this.regroup(new Set()));
      add("collapse", "", () => this.regroup(closedAtFirst(this.boxes(), 1)));
    }
    return tools;
  }

  private regroup(closed: Set<string>): void {
    this.closed = closed;
    this.draw();
    this.showAll();
  }

  private draw(): void {
    const boxes = grouped(this.boxes(), (scope) => this.closed.has(scope));
    const laid = layOut(boxes);
    this.places = new Map([...laid].map(([id, at]) => [id, { x: at.x * (WIDTH + GAP_X), y: at.layer * (HEIGHT + GAP_Y) }]));
    const parts: SVGElement[] = [];
    for (const edge of edgesOf(boxes)) {
      const from = this.places.get(edge.from), to = this.places.get(edge.to);
      if (from && to) parts.push(this.edge(from, to));
    }
    for (const box of boxes) parts.push(this.box(box));
    this.world.replaceChildren(...parts);
  }

  private edge(from: { x: number; y: number }, to: { x: number; y: number }): SVGElement {
    const path = document.createElementNS(SVG, "path");
    const top = from.y + HEIGHT, bend = Math.max(GAP_Y / 2, (to.y - top) / 2);
    path.setAttribute("d", `M${from.x},${top} C${from.x},${top + bend} ${to.x},${to.y - bend} ${to.x},${to.y}`);
    path.classList.add("edge");
    return path;
  }

  private worst(box: Grouped): number | null {
    const found = box.members.map((name) => badness(numberOf(this.byName.get(name)?.value ?? null), this.limits, this.spec.higherIsBetter));
    const known = found.filter((bad): bad is number => bad !== null);
    return known.length ? Math.max(...known) : null;
  }

  private box(box: Grouped): SVGElement {
    const at = this.places.get(box.id) ?? { x: 0, y: 0 };
    const alone = box.members.length === 1;
    const link = document.createElementNS(SVG, "a");
    link.classList.add("box");
    link.dataset.id = box.id;
    link.setAttribute("transform", `translate(${at.x - WIDTH / 2},${at.y})`);
    if (alone) link.setAttribute("href", `#node=${encodeURIComponent(box.id)}`);
    else {
      link.setAttribute("href", "#");
      link.setAttribute("role", "button");
      link.addEventListener("click", (event) => {
        event.preventDefault();
        this.open(box);
      });
    }
    const shape = document.createElementNS(SVG, "rect");
    shape.setAttribute("width", String(WIDTH));
    shape.setAttribute("height", String(HEIGHT));
    shape.setAttribute("rx", alone ? "6" : "2");
    const shade = shadeAt(this.worst(box));
    if (shade !== null) link.classList.add(`f${shade}`);
    link.append(shape, label(shorten(alone ? lastPart(box.label) : box.label), 17), label(alone ? this.byName.get(box.id)?.op ?? "" : word("group", current(), { n: box.members.length }), 33, "small"));
    const title = document.createElementNS(SVG, "title");
    title.textContent = alone ? box.id : box.label;
    link.append(title);
    return link;
  }

  private open(box: Grouped): void {
    const scope = box.label;
    this.closed.delete(scope);
    if (box.members.length > MANY_BOXES)
      for (const name of box.members) {
        const deeper = scopesOf(name).find((each) => each.length > scope.length);
        if (deeper) this.closed.add(deeper);
      }
    this.draw();
    this.centre(box.members[0] ?? "");
  }

  private find(pattern: string): void {
    const fits = matcher(pattern);
    let first = "";
    for (const box of this.world.querySelectorAll<SVGAElement>(".box")) {
      const id = box.dataset.id ?? "";
      const hit = Boolean(pattern.trim()) && fits(id.split("\u0000")[0] ?? "");
      box.classList.toggle("found", hit);
      if (hit && !first) first = id;
    }
    // It may be inside of a closed group.
    const hidden = pattern.trim() && !first ? this.spec.nodes.find((node) => fits(node.name)) : undefined;
    if (hidden) {
      for (const scope of scopesOf(hidden.name)) this.closed.delete(scope);
      this.draw();
      this.find(pattern);
    } else if (first) this.centre(first);
  }

  private start(): void {
    this.showAll();
    if (this.scale >= READABLE) return;
    let worst = "", most = -1;
    for (const box of grouped(this.boxes(), (scope) => this.closed.has(scope))) {
      const bad = this.worst(box) ?? -1;
      if (bad > most) [worst, most] = [box.id, bad];
    }
    this.scale = 1;
    this.centre(worst);
  }

  private centre(id: string): void {
    const at = this.places.get(id);
    if (!at) return;
    const view = this.svg.getBoundingClientRect();
    this.scale = Math.max(this.scale, READABLE);
    const bottom = Math.max(...[...this.places.values()].map((place) => place.y)) + HEIGHT + GAP_Y / 2;
    const middle = view.height / 2 - (at.y + HEIGHT / 2) * this.scale;
    // The ends of the network stay at the ends of the view.
    const y = Math.min((GAP_Y / 2) * this.scale, Math.max(middle, view.height - bottom * this.scale));
    this.offset = { x: view.width / 2 - at.x * this.scale, y };
    this.move();
  }

  private showAll(): void {
    const view = this.svg.getBoundingClientRect();
    const xs = [...this.places.values()].map((place) => place.x), ys = [...this.places.values()].map((place) => place.y);
    const left = Math.min(...xs) - WIDTH / 2, right = Math.max(...xs) + WIDTH / 2, bottom = Math.max(...ys) + HEIGHT;
    this.scale = Math.min(1, Math.max(SMALLEST, Math.min(view.width / (right - left + GAP_X), view.height / (bottom + GAP_Y))));
    this.offset = { x: view.width / 2 - ((left + right) / 2) * this.scale, y: (GAP_Y / 2) * this.scale };
    this.move();
  }

  private zoom(factor: number, at?: { x: number; y: number }): void {
    const view = this.svg.getBoundingClientRect();
    const point = at ?? { x: view.width / 2, y: view.height / 2 };
    const scale = Math.min(LARGEST, Math.max(SMALLEST, this.scale * factor));
    const grown = scale / this.scale;
    this.offset = { x: point.x - (point.x - this.offset.x) * grown, y: point.y - (point.y - this.offset.y) * grown };
    this.scale = scale;
    this.move();
  }

  private move(): void {
    this.world.setAttribute("transform", `translate(${this.offset.x},${this.offset.y}) scale(${this.scale})`);
  }

  private pan(x: number, y: number): void {
    this.offset = { x: this.offset.x + x, y: this.offset.y + y };
    this.move();
  }

  private listen(): void {
    this.svg.addEventListener("wheel", (event) => {
      // Plain scrolling stays the page's; with Ctrl, as maps do it, the wheel zooms.
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      const view = this.svg.getBoundingClientRect();
      this.zoom(event.deltaY < 0 ? ZOOM : 1 / ZOOM, { x: event.clientX - view.left, y: event.clientY - view.top });
    }, { passive: false });
    let held: { x: number; y: number } | null = null;
    this.svg.addEventListener("pointerdown", (event) => (held = { x: event.clientX, y: event.clientY }));
    addEventListener("pointerup", () => (held = null));
    this.svg.addEventListener("pointermove", (event) => {
      if (!held) return;
      this.pan(event.clientX - held.x, event.clientY - held.y);
      held = { x: event.clientX, y: event.clientY };
    });
    // Who walks through the boxes by keyboard sees the one that has the focus.
    this.svg.addEventListener("focusin", (event) => {
      const box = event.target instanceof SVGElement ? event.target.closest<SVGAElement>(".box") : null;
      if (!box) return;
      const view = this.svg.getBoundingClientRect(), own = box.getBoundingClientRect();
      if (own.top < view.top || own.bottom > view.bottom || own.left < view.left || own.right > view.right) this.centre(box.dataset.id ?? "");
    });
    const step = 60;
    const keys: Record<string, () => void> = {
      ArrowLeft: () => this.pan(step, 0), ArrowRight: () => this.pan(-step, 0),
      ArrowUp: () => this.pan(0, step), ArrowDown: () => this.pan(0, -step),
      "+": () => this.zoom(ZOOM), "-": () => this.zoom(1 / ZOOM), "0": () => this.showAll(),
    };
    this.svg.addEventListener("keydown", (event) => {
      const act = keys[event.key];
      if (!act || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      act();
    });
  }
}

export function numberOf(value: string | null): number | null {
  return value === null ? null : Number(value);
}

function label(text: string, y: number, style = ""): SVGElement {
  const element = document.createElementNS(SVG, "text");
  element.setAttribute("x", String(WIDTH / 2));
  element.setAttribute("y", String(y));
  if (style) element.classList.add(style);
  element.textContent = text;
  return element;
}

function lastPart(name: string): string {
  return name.length <= LONGEST_LABEL ? name : name.split("/").at(-1) || name;
}

function shorten(text: string): string {
  const letters = [...text];
  return letters.length <= LONGEST_LABEL ? text : `…${letters.slice(1 - LONGEST_LABEL).join("")}`;
}
