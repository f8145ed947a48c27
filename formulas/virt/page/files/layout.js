// The layout of a host's tiles: a squarified treemap, in per cent of its box.

/** Lay out items: objects with a `weight` above 0, preferably in descending order. ratio: of the
 * box, width to height. Returns the objects, each with x, y, w, h in per cent. */
export function squarified(items, ratio) {
  const all = items.reduce((total, one) => total + one.weight, 0);
  if (!all) return [];
  const placed = [];
  let box = { x: 0, y: 0, w: ratio, h: 1 };
  let left = items.map((item) => ({ item, area: (item.weight / all) * ratio }));
  while (left.length) {
    const side = Math.min(box.w, box.h);
    let count = 1;
    while (count < left.length && worst(left, count + 1, side) <= worst(left, count, side)) count += 1;
    box = row(left.slice(0, count), box, placed);
    left = left.slice(count);
  }
  return placed.map(({ item, x, y, w, h }) => (
    { ...item, x: (x / ratio) * 100, y: y * 100, w: (w / ratio) * 100, h: h * 100 }));
}

function worst(left, count, side) {
  let sum = 0, most = 0, least = Infinity;
  for (let at = 0; at < count; at += 1) {
    sum += left[at].area;
    most = Math.max(most, left[at].area);
    least = Math.min(least, left[at].area);
  }
  return Math.max((side * side * most) / (sum * sum), (sum * sum) / (side * side * least));
}

function row(members, box, placed) {
  const sum = members.reduce((total, one) => total + one.area, 0);
  const upright = box.w >= box.h;
  const thick = sum / (upright ? box.h : box.w);
  let at = 0;
  for (const { item, area } of members) {
    const long = area / thick;
    placed.push(upright
      ? { item, x: box.x, y: box.y + at, w: thick, h: long }
      : { item, x: box.x + at, y: box.y, w: long, h: thick });
    at += long;
  }
  return upright
    ? { x: box.x + thick, y: box.y, w: box.w - thick, h: box.h }
    : { x: box.x, y: box.y + thick, w: box.w, h: box.h - thick };
}
