// A stretch of the network, dragged out on a strip: what lies outside of it steps back in the graph and the charts.
import { type NetworkSpec, boxOf } from "./network";

export function setUpBrush(specs: readonly NetworkSpec[]): void {
  for (const cells of document.querySelectorAll<SVGSVGElement>(".strip svg.cells")) setUp(cells, specs);
  addEventListener("keydown", (event) => event.key === "Escape" && clear());
}

function clear(): void {
  for (const old of document.querySelectorAll(".brush")) old.remove();
  for (const old of document.querySelectorAll(".outside")) old.classList.remove("outside");
}

function setUp(cells: SVGSVGElement, specs: readonly NetworkSpec[]): void {
  const strip = cells.closest<HTMLElement>(".strip");
  if (!strip) return;
  let start: number | null = null, dragged = false;
  const share = (event: PointerEvent): number => {
    const box = cells.getBoundingClientRect();
    return Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
  };
  cells.addEventListener("pointerdown", (event) => {
    start = share(event);
    dragged = false;
  });
  cells.addEventListener("dragstart", (event) => event.preventDefault());
  addEventListener("pointermove", (event) => {
    if (start === null) return;
    const end = share(event), low = Math.min(start, end), high = Math.max(start, end);
    if (!dragged && high - low < 0.01) return;
    dragged = true;
    clear();
    select(strip, specs, low, high);
  });
  addEventListener("pointerup", () => (start = null));
  cells.addEventListener("click", (event) => {
    if (dragged) event.preventDefault();
    else clear();
  }, true);
}

function select(strip: HTMLElement, specs: readonly NetworkSpec[], low: number, high: number): void {
  for (const each of strip.querySelectorAll<SVGSVGElement>("svg.cells")) {
    const frame = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    for (const [name, value] of [["class", "brush"], ["x", `${100 * low}%`], ["width", `${100 * (high - low)}%`], ["height", "100%"]] as const) frame.setAttribute(name, value);
    each.append(frame);
  }
  const links = [...strip.querySelectorAll<SVGAElement>("svg.cells a")];
  const inside = links.filter((_, at) => (at + 1) / links.length > low && at / links.length < high);
  const places = inside.map((link) => boxOf(specs, decodeURIComponent((link.getAttribute("href") ?? "").replace(/^#node=/, "")))?.box).filter((each) => each !== undefined);
  if (!places.length) return;
  const first = Math.min(...places), last = Math.max(...places);
  for (const box of document.querySelectorAll<SVGElement>(".network .graph > a.box")) {
    const at = Number(box.dataset.box);
    box.classList.toggle("outside", at < first || at > last);
  }
  const plot = strip.closest(".errors")?.querySelectorAll<SVGAElement>(".plot a") ?? [];
  [...plot].forEach((link, at) => link.classList.toggle("outside", (at + 1) / plot.length <= low || at / plot.length >= high));
}
