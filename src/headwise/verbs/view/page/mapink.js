/* The ink of the small maps. A code c of a thumbnail stands for the weight (c / 255)^2; rows sum to one. */
const MapInk = (function () {
  /* One cell a token: the first token can be left out exactly. */
  const whole = ({ header }) => header.thumbnail_size === header.seq_len;

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
  function pool(codes, size, count) {
    const shares = overlaps(size, count);
    const narrow = new Float32Array(size * count);
    for (let row = 0; row < size; row++) {
      for (let column = 0; column < count; column++) {
        let mass = 0;
        for (const [i, share] of shares[column]) mass += share * Heads.WEIGHT[codes[row * size + i]];
        narrow[row * count + column] = mass;
      }
    }
    const steps = new Uint8Array(count * count);
    for (let row = 0; row < count; row++) {
      for (let column = 0; column < count; column++) {
        let mass = 0;
        for (const [i, share] of shares[row]) mass += share * narrow[i * count + column];
        steps[row * count + column] = Math.round(255 * Math.sqrt(Math.min(1, (mass * count) / size)));
      }
    }
    return steps;
  }

  /* The same map with the first token left out and each row brought back to its sum. */
  function withoutFirst(codes, size) {
    const steps = new Uint8Array(size * size);
    let first = 0;
    while (first < size - 1 && !codes.subarray(first * size, (first + 1) * size).some((code) => code > 0)) first++;
    for (let row = 0; row < size; row++) {
      let sum = 0;
      for (let key = 0; key < size; key++) sum += Heads.WEIGHT[codes[row * size + key]];
      const others = sum - Heads.WEIGHT[codes[row * size + first]];
      if (others < Heads.LEAST_LEFT) continue;
      const stretch = Math.sqrt(sum / others);
      for (let key = 0; key < size; key++) {
        if (key !== first) steps[row * size + key] = Math.min(255, codes[row * size + key] * stretch);
      }
    }
    return steps;
  }

  /* The ink of one thumbnail, at most `pixels` cells a side. */
  function steps(run, thumbnails, head, pixels, discount) {
    const size = run.header.thumbnail_size;
    let codes = thumbnails.subarray(head * size * size, (head + 1) * size * size);
    if (discount && whole(run)) codes = withoutFirst(codes, size);
    return size > pixels ? { steps: pool(codes, size, pixels), count: pixels } : { steps: codes, count: size };
  }

  /* Draws such a map into a square of `pixels` screen pixels. */
  function drawMap(context, found, x, y, pixels) {
    context.imageSmoothingEnabled = false;
    context.drawImage(Ink.image(found.steps, found.count, found.count), x, y, pixels, pixels);
  }

  /* One number as ink; a number that is missing is a crossed-out cell. */
  function drawValue(context, share, x, y, pixels) {
    context.fillStyle = Ink.colour(share ?? 0);
    context.fillRect(x, y, pixels, pixels);
    if (share !== null) return;
    context.strokeStyle = Ink.colour(0.4);
    context.beginPath();
    context.moveTo(x, y + pixels);
    context.lineTo(x + pixels, y);
    context.stroke();
  }

  /* Full ink of a statistic: 1 for a share of weight, otherwise the largest value of all heads. */
  function fullInk(statistic) {
    if (statistic.unit === "mass") return 1;
    const values = Data.runs.flatMap((run) => run.header.heads.map((head) => head[statistic.key] ?? 0));
    return Math.max(...values) || 1;
  }

  const shown = (state) => Data.header.statistics.find((one) => one.key === state.show);

  const painting = new Map();   // canvas -> how often it was painted

  function paint(run, canvas, plan, state) {
    const turn = (painting.get(canvas) ?? 0) + 1;
    painting.set(canvas, turn);
    const ratio = window.devicePixelRatio || 1;
    const context = Ink.sized(canvas, plan.width, plan.height);
    const pixels = Math.round(plan.cell * ratio);
    const statistic = shown(state);
    const full = statistic ? fullInk(statistic) : 1;
    const byLayer = new Map();
    for (const place of plan.rows.flatMap((row) => row.places)) {
      const [x, y] = [Math.round(place.x * ratio), Math.round(place.y * ratio)];
      if (statistic) {
        const value = run.head(place.layer, place.head)[statistic.key];
        drawValue(context, value === null ? null : value / full, x, y, pixels);
        continue;
      }
      if (!byLayer.has(place.layer)) byLayer.set(place.layer, []);
      byLayer.get(place.layer).push([place.head, x, y]);
    }
    for (const [layer, places] of byLayer) {
      run.block("thumbnails/" + layer).then((thumbnails) => {
        if (turn !== painting.get(canvas)) return;   // a later painting has begun
        for (const [head, x, y] of places) drawMap(context, steps(run, thumbnails, head, pixels, state.discount), x, y, pixels);
      });
    }
  }

  return { paint, steps, drawMap, fullInk, shown, whole };
})();
