// A closer look at the graph: zoom by Ctrl and wheel or by keys, pan by dragging, a small map of the whole beside it.
import { current, onChange } from "./language";
import { type WordKey, word } from "./words";

interface View {
  x: number;
  y: number;
  w: number;
  h: number;
}

const CLOSEST = 8, STEP = 1.3;

export function setUpZoom(figure: HTMLElement, tools: HTMLElement): void {
  const graph = figure.querySelector<SVGSVGElement>("svg.graph");
  const sheet = figure.querySelector<HTMLElement>(".sheet");
  if (!graph || !sheet) return;
  const { x, y, width, height } = graph.viewBox.baseVal;
  const whole: View = { x, y, w: width, h: height };
  let view = { ...whole };
  const map = miniature(graph, whole);
  sheet.append(map.element);

  const show = (wanted: View): void => {
    const w = Math.min(whole.w, Math.max(whole.w / CLOSEST, wanted.w));
    const h = (w * whole.h) / whole.w;
    view = { w, h, x: between(wanted.x, whole.x, whole.x + whole.w - w), y: between(wanted.y, whole.y, whole.y + whole.h - h) };
    graph.setAttribute("viewBox", `${view.x} ${view.y} ${view.w} ${view.h}`);
    map.show(view, w < whole.w - 0.5);
    sheet.classList.toggle("close", w < whole.w - 0.5);
  };
  const zoom = (factor: number, at?: { x: number; y: number }): void => {
    const w = view.w / factor, h = view.h / factor;
    const middle = at ?? { x: view.x + view.w / 2, y: view.y + view.h / 2 };
    show({ w, h, x: middle.x - ((middle.x - view.x) * w) / view.w, y: middle.y - ((middle.y - view.y) * h) / view.h });
  };
  const place = (event: MouseEvent): { x: number; y: number } => {
    const box = graph.getBoundingClientRect();
    return { x: view.x + ((event.clientX - box.left) / box.width) * view.w, y: view.y + ((event.clientY - box.top) / box.height) * view.h };
  };

  graph.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    zoom(event.deltaY < 0 ? STEP : 1 / STEP, place(event));
  }, { passive: false });
  let from: { x: number; y: number; view: View } | null = null, moved = false;
  graph.addEventListener("pointerdown", (event) => {
    moved = false;
    if (view.w < whole.w - 0.5 && event.button === 0) from = { x: event.clientX, y: event.clientY, view };
  });
  addEventListener("pointermove", (event) => {
    if (!from) return;
    const scale = from.view.w / graph.getBoundingClientRect().width;
    const dx = event.clientX - from.x, dy = event.clientY - from.y;
    moved ||= Math.abs(dx) + Math.abs(dy) > 4;
    if (moved) show({ ...from.view, x: from.view.x - dx * scale, y: from.view.y - dy * scale });
  });
  addEventListener("pointerup", () => (from = null));
  // What was dragged was not chosen.
  graph.addEventListener("click", (event) => moved && (event.preventDefault(), event.stopPropagation()), true);
  graph.addEventListener("dragstart", (event) => event.preventDefault());
  map.onPick((middle) => show({ ...view, x: middle.x - view.w / 2, y: middle.y - view.h / 2 }));

  const group = document.createElement("span");
  group.className = "views zoom";
  const acts: [string, WordKey, () => void][] = [
    ["+", "closer", () => zoom(STEP)],
    ["\u2212", "farther", () => zoom(1 / STEP)],
    ["\u2922", "fit", () => show(whole)],
  ];
  for (const [sign, key, act] of acts) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = sign;
    const tell = (): void => {
      button.title = word(key, current());
      button.setAttribute("aria-label", button.title);
    };
    tell();
    onChange(tell);
    button.addEventListener("click", act);
    group.append(button);
  }
  tools.append(group);
  addEventListener("keydown", (event) => {
    const typing = event.target instanceof HTMLElement && /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    const act = { "+": acts[0], "=": acts[0], "-": acts[1], f: acts[2] }[event.key];
    act?.[2]();
  });
}

function between(value: number, low: number, high: number): number {
  return Math.min(Math.max(value, low), Math.max(low, high));
}

/** All boxes as plain rectangles in their colours, and a frame around what is seen. */
function miniature(graph: SVGSVGElement, whole: View) {
  const svg = (name: string): SVGElement => document.createElementNS("http://www.w3.org/2000/svg", name);
  const element = svg("svg") as SVGSVGElement;
  element.setAttribute("class", "graph minimap");
  element.setAttribute("viewBox", `${whole.x} ${whole.y} ${whole.w} ${whole.h}`);
  element.setAttribute("aria-hidden", "true");
  const frame = svg("rect");
  frame.setAttribute("class", "frame");
  const draw = (): void => {
    element.replaceChildren();
    for (const box of graph.querySelectorAll<SVGElement>(":scope > a.box")) {
      const copy = svg("g");
      copy.setAttribute("class", box.getAttribute("class") ?? "");
      copy.setAttribute("transform", box.getAttribute("transform") ?? "");
      const shape = box.querySelector("rect:not(.behind)");
      if (shape) copy.append(shape.cloneNode());
      element.append(copy);
    }
    element.append(frame);
  };
  return {
    element,
    show(view: View, wanted: boolean): void {
      element.classList.toggle("shown", wanted);
      if (!wanted) return;
      draw();
      for (const [name, value] of [["x", view.x], ["y", view.y], ["width", view.w], ["height", view.h]] as const) frame.setAttribute(name, String(value));
    },
    onPick(act: (middle: { x: number; y: number }) => void): void {
      const pick = (event: PointerEvent): void => {
        if (!event.buttons) return;
        const box = element.getBoundingClientRect();
        act({ x: whole.x + ((event.clientX - box.left) / box.width) * whole.w, y: whole.y + ((event.clientY - box.top) / box.height) * whole.h });
      };
      element.addEventListener("pointerdown", pick);
      element.addEventListener("pointermove", pick);
    },
  };
}
