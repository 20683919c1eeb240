// What is not seen yet costs nothing: work that waits until its element comes close to the window.

const waiting = new Map<Element, () => void>();
const NEARBY = "400px";

let watcher: IntersectionObserver | null = null;

function begin(element: Element): void {
  const act = waiting.get(element);
  waiting.delete(element);
  watcher?.unobserve(element);
  act?.();
}

/** Call `act` when the element comes close to the window, or is about to be printed; once. */
export function onceInView(element: Element, act: () => void): void {
  watcher ??= watch();
  waiting.set(element, act);
  watcher.observe(element);
}

function watch(): IntersectionObserver {
  // Paper shows everything at once.
  addEventListener("beforeprint", () => [...waiting.keys()].forEach(begin));
  return new IntersectionObserver(
    (entries) => {
      for (const entry of entries) if (entry.isIntersecting) begin(entry.target);
    },
    { rootMargin: NEARBY },
  );
}
