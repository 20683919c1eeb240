// Where nodes of a network stand: layers from top to bottom by the longest way from an input, within a layer so that
// edges cross little. Nodes come in execution order, so that one pass finds the layers.

export interface Box {
  id: string;
  inputs: readonly string[];
  outputs: readonly string[];
}

export interface Place {
  layer: number;
  /** Position within its layer, from the middle of the drawing. */
  x: number;
}

export interface Edge {
  from: string;
  to: string;
}

export function edgesOf(boxes: readonly Box[]): Edge[] {
  const producer = new Map<string, string>();
  for (const box of boxes) for (const tensor of box.outputs) producer.set(tensor, box.id);
  const seen = new Set<string>();
  const edges: Edge[] = [];
  for (const box of boxes)
    for (const tensor of box.inputs) {
      const from = producer.get(tensor);
      const key = `${from}\u0000${box.id}`;
      if (from === undefined || from === box.id || seen.has(key)) continue;
      seen.add(key);
      edges.push({ from, to: box.id });
    }
  return edges;
}

const SWEEPS = 4;

export function layOut(boxes: readonly Box[]): Map<string, Place> {
  const edges = edgesOf(boxes);
  const order = new Map(boxes.map((box, at) => [box.id, at]));
  const above = new Map<string, string[]>(boxes.map((box) => [box.id, []]));
  const below = new Map<string, string[]>(boxes.map((box) => [box.id, []]));
  for (const { from, to } of edges) {
    // A group may read what a later one writes; such an edge turns back and decides nothing.
    if ((order.get(from) ?? 0) >= (order.get(to) ?? 0)) continue;
    above.get(to)?.push(from);
    below.get(from)?.push(to);
  }
  const layer = new Map<string, number>();
  const layers: string[][] = [];
  for (const box of boxes) {
    const depth = Math.max(-1, ...(above.get(box.id) ?? []).map((id) => layer.get(id) ?? 0)) + 1;
    layer.set(box.id, depth);
    (layers[depth] ??= []).push(box.id);
  }
  const x = new Map<string, number>();
  const spread = (ids: readonly string[]): void => ids.forEach((id, at) => x.set(id, at - (ids.length - 1) / 2));
  layers.forEach(spread);
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    const down = sweep % 2 === 0;
    const neighbours = down ? above : below;
    for (const ids of down ? layers : [...layers].reverse()) {
      const wish = new Map(ids.map((id) => [id, middle(neighbours.get(id) ?? [], x) ?? x.get(id) ?? 0]));
      ids.sort((a, b) => (wish.get(a) ?? 0) - (wish.get(b) ?? 0) || (order.get(a) ?? 0) - (order.get(b) ?? 0));
      settle(ids, wish, x);
    }
  }
  return new Map(boxes.map((box) => [box.id, { layer: layer.get(box.id) ?? 0, x: x.get(box.id) ?? 0 }]));
}

function middle(ids: readonly string[], x: ReadonlyMap<string, number>): number | null {
  if (!ids.length) return null;
  return ids.reduce((sum, id) => sum + (x.get(id) ?? 0), 0) / ids.length;
}

/** Give each the place it wishes for, at least one apart from the one before, and keep the layer where it wishes to be. */
function settle(ids: readonly string[], wish: ReadonlyMap<string, number>, x: Map<string, number>): void {
  let last = -Infinity;
  const placed = ids.map((id) => (last = Math.max(wish.get(id) ?? 0, last + 1)));
  const shift = ids.reduce((sum, id, at) => sum + (wish.get(id) ?? 0) - (placed[at] ?? 0), 0) / Math.max(1, ids.length);
  ids.forEach((id, at) => x.set(id, (placed[at] ?? 0) + shift));
}
