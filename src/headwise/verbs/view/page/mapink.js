/* The ink of the small maps. A code c of a thumbnail stands for the weight (c / 255)^2; rows sum to one. */
const MapInk = (function () {
  /* One cell a token in every map: the first token can be left out exactly. */
  const whole = (run) => run.header.layers.every((layer) => (
    layer.map_rows === run.queries.length && layer.map_columns === run.keys.length
  ));

  /* The shares of the source cells in each of `count` target cells: [[index, share], ...] per target. */
  function overlaps(size, count) {
    return Array.from({ length: count }, (_, target) => {
      const from = (target * size) / count;
      const to = ((target + 1) * size) / count;
      const shares = [];
      for (let i = Math.floor(from); i < Math.min(size, Math.ceil(to)); i++) {
        shares.push([i, Math.min(to, i + 1) - Math.max(from, i)]);
      }
      return shares;
    });
  }

  /* Fewer cells, pooled as thumbnails are: mass is added along a row, and rows are averaged. */
  function pool({ codes, rows, columns }, down, across) {
    const wide = overlaps(columns, across);
    const narrow = new Float32Array(rows * across);
    for (let row = 0; row < rows; row++) {
      for (let column = 0; column < across; column++) {
        let mass = 0;
        for (const [i, share] of wide[column]) mass += share * Heads.WEIGHT[codes[row * columns + i]];
        narrow[row * across + column] = mass;
      }
    }
    const steps = new Uint8Array(down * across);
    overlaps(rows, down).forEach((shares, row) => {
      for (let column = 0; column < across; column++) {
        let mass = 0;
        for (const [i, share] of shares) mass += share * narrow[i * across + column];
        steps[row * across + column] = Math.round(255 * Math.sqrt(Math.min(1, (mass * down) / rows)));
      }
    });
    return steps;
  }

  /* A map of at most `down` x `across` cells. */
  function fitted(map, down, across) {
    const [rows, columns] = [Math.min(map.rows, down), Math.min(map.columns, across)];
    return { steps: rows < map.rows || columns < map.columns ? pool(map, rows, columns) : map.codes, rows, columns };
  }

  /* The same map with the first token left out and each row brought back to its sum. */
  function withoutFirst({ codes, rows, columns }) {
    const steps = new Uint8Array(rows * columns);
    const rowOf = (row) => codes.subarray(row * columns, (row + 1) * columns);
    let first = 0;
    while (first < Math.min(rows, columns) - 1 && !rowOf(first).some((code) => code > 0)) first++;
    for (let row = 0; row < rows; row++) {
      const sum = rowOf(row).reduce((total, code) => total + Heads.WEIGHT[code], 0);
      const others = sum - Heads.WEIGHT[rowOf(row)[first]];
      if (others < Heads.LEAST_LEFT) continue;
      const stretch = Math.sqrt(sum / others);
      rowOf(row).forEach((code, key) => { if (key !== first) steps[row * columns + key] = Math.min(255, code * stretch); });
    }
    return { codes: steps, rows, columns };
  }

  /* The ink of one thumbnail, at most `pixels` cells a side: {steps, rows, columns}. */
  function steps(run, thumbnails, { layer, head }, pixels, discount) {
    const { map_rows: rows, map_columns: columns } = run.layer(layer);
    const cells = rows * columns;
    const map = { codes: thumbnails.subarray(head * cells, (head + 1) * cells), rows, columns };
    return fitted(discount && whole(run) ? withoutFirst(map) : map, pixels, pixels);
  }

  /* Draws such a map into a square of `pixels` screen pixels. */
  function drawMap(context, found, x, y, pixels, palette) {
    context.imageSmoothingEnabled = false;
    context.drawImage(Ink.image(found.steps, found.columns, found.rows, palette), x, y, pixels, pixels);
  }

  /* One number as ink; a number that is missing is a crossed-out cell. */
  function drawValue(context, share, x, y, pixels, palette) {
    context.fillStyle = Ink.colourOf(share ?? 0, palette);
    context.fillRect(x, y, pixels, pixels);
    if (share !== null) return;
    context.strokeStyle = Ink.colour(0.4);
    context.beginPath();
    context.moveTo(x, y + pixels);
    context.lineTo(x + pixels, y);
    context.stroke();
  }

  const painting = new Map();   // canvas -> how often it was painted

  /* Paints what `source` has of each head of the plan. */
  function paint(source, canvas, plan, state) {
    const turn = (painting.get(canvas) ?? 0) + 1;
    painting.set(canvas, turn);
    const ratio = window.devicePixelRatio || 1;
    const context = Ink.sized(canvas, plan.width, plan.height);
    const pixels = Math.round(plan.cell * ratio);
    const statistic = MapSource.shown(state);
    const full = statistic && source.full(statistic);
    for (const place of plan.rows.flatMap((row) => row.places)) {
      const [x, y] = [Math.round(place.x * ratio), Math.round(place.y * ratio)];
      if (statistic) {
        const value = source.value(place, statistic.key);
        drawValue(context, value === null ? null : value / full, x, y, pixels, source.palette);
      } else if (source.drawsMaps) {
        source.steps(place, pixels, state.discount).then((found) => {
          if (turn !== painting.get(canvas)) return;   // a later painting has begun
          drawMap(context, found, x, y, pixels, source.palette);
        });
      }
    }
  }

  return { paint, steps, fitted, drawMap, whole };
})();
