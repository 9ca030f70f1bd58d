// Where a menu opens: below its button and to the right, or the other way where the list around it would cut it off.

/** Turn a menu that has just been drawn the way there is room for it. */
export function place(menu) {
  const frame = menu.closest(".messages, .dialog-body")?.getBoundingClientRect() ?? { bottom: window.innerHeight, right: window.innerWidth };
  const { bottom, right } = menu.getBoundingClientRect();
  menu.classList.toggle("up", bottom > frame.bottom);
  menu.classList.toggle("right", menu.classList.contains("right") || right > frame.right);
}
