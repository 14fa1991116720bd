// Sends the server the distance by which a region or its lower right corner was moved, by pointer or arrow keys.
const place = event => {
  const frame = element.querySelector('.drawing').getBoundingClientRect();
  return [(event.clientX - frame.left) / frame.width, (event.clientY - frame.top) / frame.height];
};
const send = (region, dx, dy, corner) =>
  trigger('release', {index: Number(region.dataset.index), dx: dx, dy: dy, corner: corner});
let held = null;
element.addEventListener('pointerdown', event => {
  const region = event.target.closest('.region');
  if (!region) return;
  held = {region: region, from: place(event), corner: event.target.classList.contains('corner')};
  element.setPointerCapture(event.pointerId);
  event.preventDefault();
});
element.addEventListener('pointermove', event => {
  if (!held) return;
  const now = place(event), dx = 100 * (now[0] - held.from[0]), dy = 100 * (now[1] - held.from[1]);
  const box = held.region.querySelector('.box');
  if (held.corner) {
    box.setAttribute('width', Math.max(3, Number(box.dataset.width) + dx));
    box.setAttribute('height', Math.max(3, Number(box.dataset.height) + dy));
  } else held.region.setAttribute('transform', `translate(${dx} ${dy})`);
});
element.addEventListener('pointerup', event => {
  if (!held) return;
  const now = place(event);
  send(held.region, now[0] - held.from[0], now[1] - held.from[1], held.corner);
  held = null;
});
element.addEventListener('keydown', event => {
  const steps = {ArrowLeft: [-.02, 0], ArrowRight: [.02, 0], ArrowUp: [0, -.02], ArrowDown: [0, .02]};
  const region = event.target.closest('.region');
  if (!region || !(event.key in steps)) return;
  event.preventDefault();
  send(region, ...steps[event.key], event.shiftKey);
});
