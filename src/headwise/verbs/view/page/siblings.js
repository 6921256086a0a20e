/* The heads that read the same KV head as the open one, as small maps. */
function Siblings(run) {
  const { header } = run;
  const host = run.part("siblings");
  const heading = run.part("siblings-heading");
  const bench = run.part("bench");

  function draw(state) {
    const { kv_head: kvHead } = run.head(state.layer, state.head);
    const alike = header.heads.filter((one) => one.layer === state.layer && one.kv_head === kvHead);
    run.part("siblings-part").hidden = alike.length < 2;
    heading.textContent = "heads that read KV head " + kvHead;
    const cells = run.layer(state.layer).map_columns;
    const room = Math.floor(bench.clientWidth / 3) - 16;
    const most = alike.length > 8 ? 64 : Math.min(120, room);
    const size = cells <= most ? Math.floor(most / cells) * cells : most;
    const made = alike.map(({ layer, head }) => {
      const button = Words.element("button", "sibling");
      button.type = "button";
      button.setAttribute("aria-pressed", String(head === state.head));
      const canvas = Words.element("canvas");
      const context = Ink.sized(canvas, size, size);
      run.block("thumbnails/" + layer).then((thumbnails) => {
        MapInk.drawMap(context, MapInk.steps(run, thumbnails, { layer, head }, canvas.width, state.discount), 0, 0, canvas.width, "scale");
      });
      button.append(canvas, Words.element("span", "number", "head " + head));
      button.addEventListener("click", () => State.pin({ layer, head }, run));
      return button;
    });
    const held = host.contains(document.activeElement);
    host.replaceChildren(...made);
    if (held) host.querySelector('[aria-pressed="true"]').focus();
  }

  return { draw };
}
