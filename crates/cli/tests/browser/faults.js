// Returns what is wrong with the page as it is shown now, a text for each fault.
const root = document.documentElement;
const faults = [];
const near = 1;
const name = (element) => {
  const text = (element.alt || element.textContent).trim().replace(/\s+/g, ' ').slice(0, 60);
  return `${element.tagName.toLowerCase()} "${text}"`;
};
const dark = matchMedia('(prefers-color-scheme: dark)').matches;

for (const image of document.images) {
  if (!image.complete || image.naturalWidth === 0) {
    faults.push(`not drawn: ${name(image)}`);
  }
  if (!image.alt || !image.getAttribute('width') || !image.getAttribute('height')) {
    faults.push(`without a text or a size: ${name(image)}`);
  }
  const source = image.parentElement.querySelector('source');
  if (source && (image.currentSrc === source.srcset) !== dark) {
    faults.push(`of the other scheme: ${name(image)}`);
  }
}

// Ancestors that scroll or cut bound their contents.
const everything = { left: -Infinity, top: -Infinity, right: Infinity, bottom: Infinity };
const within = (one, other) => ({
  left: Math.max(one.left, other.left),
  top: Math.max(one.top, other.top),
  right: Math.min(one.right, other.right),
  bottom: Math.min(one.bottom, other.bottom),
});
const known = new Map([[document.body, everything], [root, everything]]);
const bounds = (element) => {
  if (!known.has(element)) {
    const outer = bounds(element.parentElement);
    const cuts = getComputedStyle(element).overflowX !== 'visible';
    known.set(element, cuts ? within(outer, element.getBoundingClientRect()) : outer);
  }
  return known.get(element);
};
const blocks = [];
const kinds = 'h1, h2, h3, h4, p, li, dt, dd, th, td, caption, summary, pre, img, .badge';
for (const element of document.querySelectorAll(kinds)) {
  if (!element.checkVisibility({ contentVisibilityAuto: true })) {
    continue;
  }
  let rect = element.getBoundingClientRect();
  if (element.tagName !== 'IMG') {
    // What is written, which may reach beyond its box.
    const range = document.createRange();
    range.selectNodeContents(element);
    rect = range.getBoundingClientRect();
  }
  rect = within(rect, bounds(element.parentElement));
  if (rect.right - rect.left > near && rect.bottom - rect.top > near) {
    blocks.push({ element, ...rect });
  }
}

if (root.scrollWidth > root.clientWidth) {
  faults.push(`the page is ${root.scrollWidth} wide, the window ${root.clientWidth}`);
}
for (const block of blocks) {
  if (block.right > root.clientWidth + near || block.left < -near) {
    faults.push(`beyond the edge: ${name(block.element)}`);
  }
}

blocks.sort((one, other) => one.top - other.top);
for (let number = 0; number < blocks.length; number += 1) {
  const one = blocks[number];
  for (let next = number + 1; next < blocks.length; next += 1) {
    const other = blocks[next];
    if (other.top >= one.bottom - near) {
      break;
    }
    const overlap = other.left < one.right - near && one.left < other.right - near;
    const nested = one.element.contains(other.element) || other.element.contains(one.element);
    if (overlap && !nested && other.bottom > one.top + near) {
      faults.push(`on each other: ${name(one.element)} and ${name(other.element)}`);
    }
  }
}
return faults;
