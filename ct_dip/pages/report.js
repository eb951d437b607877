"use strict";
/* Draws the images of report.html and answers what the reader asks of them. Plain JavaScript, nothing loaded.

   Images are (rows, columns), first row on top, the rotation axis in the middle, y pointing up. Canvases have
   one dot per pixel and are scaled by CSS, so marks and axes are placed in percent. */
(async () => {
  const byId = (id) => document.getElementById(id);
  const data = JSON.parse(byId("data").textContent);
  const [rows, columns] = data.shape;
  const step = data.pixelSize; // mm
  const WIDTH_95 = data.pixels.reach; // standard deviations to the end of a 95 % interval

  // Arrays are packed as ct_dip/pages/packed.py says.

  if (typeof DecompressionStream === "undefined") {
    byId("too-old").hidden = false;
    return;
  }

  async function inflated(text) {
    const packed = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  }

  async function floats(text) { // exact: four planes of bytes, the lowest first
    const planes = await inflated(text), n = planes.length / 4;
    const bytes = new DataView(new ArrayBuffer(4 * n)), values = new Float32Array(n);
    for (let i = 0; i < n; i++) {
      for (let k = 0; k < 4; k++) bytes.setUint8(4 * i + k, planes[k * n + i]);
      values[i] = bytes.getFloat32(4 * i, true);
    }
    return values;
  }

  async function steps({ data: text, step: size }) { // multiples of a step
    return Float32Array.from(new Int8Array((await inflated(text)).buffer), (k) => size * k);
  }

  const mask = data.mask ? await steps(data.mask) : null; // pixels in the field of view; all if null
  const seen = (i) => !mask || mask[i] > 0;
  for (const image of data.images) if (image.data) image.values = await floats(image.data);
  const images = Object.fromEntries(data.images.map((image) => [image.name, image]));
  const mean = data.images[0].values;
  for (const [name, other] of [["error", "truth"], ["difference", "reference"]]) {
    if (images[name]) images[name].values = mean.map((v, i) => (seen(i) ? v - images[other].values[i] : NaN));
  }
  const std = images.std ? images.std.values : null;
  if (std) images.std.values = std.map((v) => WIDTH_95 * v); // shown, as everywhere, as a 95 % error bar
  // Samples are stored as their distances from the mean in standard deviations.
  const samples = data.samples ? (await steps(data.samples)).map((z, k) => {
    const i = k % mean.length;
    return mean[i] + std[i] * z;
  }) : null;

  const first = std ? std.reduce((best, v, i) => (seen(i) && !(v <= std[best]) ? i : best), -1)
    : (rows >> 1) * columns + (columns >> 1);
  const state = {
    row: Math.floor(first / columns), column: first % columns, // the least certain pixel, or the middle
    threshold: data.threshold.start,
    region: null, // {x0, x1, y0, y1}, mm
  };

  // Mathematics

  function upperTail(z) { // of a pixel's distribution, from a table of one side
    const { tails, step: width } = data.pixels, place = Math.min(Math.abs(z) / width, tails.length - 1);
    const below = Math.floor(place), above = Math.min(below + 1, tails.length - 1);
    const tail = tails[below] + (place - below) * (tails[above] - tails[below]);
    return z >= 0 ? tail : 1 - tail;
  }

  function chanceAbove(i, threshold) {
    if (std[i] > 0) return upperTail((threshold - mean[i]) / std[i]);
    return mean[i] > threshold ? 1 : 0;
  }

  function quantile(sorted, q) { // rank q (n + 1), linear in between
    const place = Math.max(0, Math.min(sorted.length - 1, q * (sorted.length + 1) - 1)), below = Math.floor(place);
    return sorted[below] + (place - below) * (sorted[Math.min(below + 1, sorted.length - 1)] - sorted[below]);
  }

  const toX = (column) => (column - (columns - 1) / 2) * step;
  const toY = (row) => ((rows - 1) / 2 - row) * step;

  function regionPixels({ x0, x1, y0, y1 }) { // those whose centre is inside
    const pixels = [], slack = 1e-9 * step;
    const inside = (v, a, b) => v >= Math.min(a, b) - slack && v <= Math.max(a, b) + slack;
    for (let r = 0; r < rows; r++) {
      if (!inside(toY(r), y0, y1)) continue;
      for (let c = 0; c < columns; c++) if (inside(toX(c), x0, x1)) pixels.push(r * columns + c);
    }
    return pixels;
  }

  /* As ct_dip.evaluation.region, which says why: the mean of a region is Gaussian, its centre known and its spread
     that of the samples (Student's width); an area is neither, and has the mean and the quantiles of the samples. */
  function regionAnswers(pixels, threshold) {
    const average = (values, start) => pixels.reduce((sum, i) => sum + values[start + i], 0) / pixels.length;
    const above = (values, start) =>
      step * step * pixels.reduce((count, i) => count + (values[start + i] > threshold), 0);
    const answers = { mean: average(mean, 0), area: above(mean, 0) };
    answers.imageArea = answers.area;
    if (samples) {
      const starts = Array.from({ length: data.samples.count }, (_, k) => k * rows * columns);
      const variance = starts.reduce((sum, start) => sum + (average(samples, start) - answers.mean) ** 2, 0) / starts.length;
      answers.half = data.samples.width * Math.sqrt(variance);
      const areas = starts.map((start) => above(samples, start)).sort((a, b) => a - b);
      answers.area = areas.reduce((a, b) => a + b) / areas.length;
      [answers.areaLow, answers.areaHigh] = [0.025, 0.975].map((q) => quantile(areas, q));
    }
    return answers;
  }

  // Numbers for people

  const minus = (text) => text.replace(/^-/, "−");
  const decimalsFor = (size) => Math.max(0, Math.min(12, 1 - Math.floor(Math.log10(size))));
  const withDecimals = (value, decimals) => minus((Math.abs(value) < 0.5 * 10 ** -decimals ? 0 : value).toFixed(decimals));
  const spread = data.threshold.high - data.threshold.low;
  const plain = (value) => withDecimals(value, decimalsFor(spread / 100));
  const given = (value) => minus(String(Number(value.toPrecision(4)))); // what the reader chose
  const length = (value) => withDecimals(value, decimalsFor(step) - 1 + (step % 1 === 0 && columns % 2 && rows % 2 ? 0 : 1));
  const withError = (value, half) => {
    if (!(half > 0)) return [plain(value), "0"];
    const decimals = decimalsFor(half);
    return [withDecimals(value, decimals), half.toFixed(decimals)];
  };
  function percent(p) {
    if (p < 0.001) return "under 0.1 %";
    if (p > 0.999) return "over 99.9 %";
    return (100 * p).toFixed(p < 0.1 || p > 0.9 ? 1 : 0) + " %";
  }
  function area(value) {
    return withDecimals(value, decimalsFor(step * step)).replace(/\.0+$/, "");
  }
  function ticks(low, high, count) {
    const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
    const unit = power * [1, 2, 5, 10].find((n) => n * power >= rough * (1 - 1e-9));
    const values = [];
    for (let n = Math.ceil(low / unit - 1e-9); n * unit <= high + 1e-9 * unit; n++) values.push(n * unit);
    return { values, decimals: Math.max(0, Math.min(12, -Math.floor(Math.log10(unit) + 1e-9))) };
  }

  // Colours: a few anchors of grey, viridis, a blue-white-red, and magma, linear in between

  const hex = (text) => text.split(" ").map((c) => [0, 2, 4].map((k) => parseInt(c.slice(k, k + 2), 16)));
  const colours = {
    attenuation: hex("000000 ffffff"),
    std: hex("440154 472d7b 3b528b 2c728e 21918c 28ae80 5ec962 addc30 fde725"),
    error: hex("053061 4393c3 d1e5f0 f7f7f7 fddbc7 d6604d 67001f"),
    chance: hex("000004 221150 5f187f 982d80 d3436e f8765c febb81 fcfdbf"),
  };
  const tables = Object.fromEntries(Object.entries(colours).map(([kind, anchors]) => [kind,
    Array.from({ length: 256 }, (_, k) => {
      const place = (k / 255) * (anchors.length - 1), i = Math.min(Math.floor(place), anchors.length - 2);
      return anchors[i].map((v, c) => Math.round(v + (place - i) * (anchors[i + 1][c] - v)));
    })]));

  function paint(canvas, value, width, height, { kind, low, high }, shown = () => true) {
    canvas.width = width;
    canvas.height = height;
    const context = canvas.getContext("2d"), picture = context.createImageData(width, height);
    for (let i = 0; i < width * height; i++) {
      const share = Math.max(0, Math.min(1, (value(i) - low) / (high - low)));
      picture.data.set([...tables[kind][Math.round(255 * share) || 0], shown(i) ? 255 : 0], 4 * i);
    }
    context.putImageData(picture, 0, 0);
  }

  const units = { attenuation: "attenuation, /mm", std: "half of the 95 % interval, /mm", error: "error, /mm" };
  function paintBar(bar, image, title) {
    paint(bar.querySelector("canvas"), (i) => image.low + (i / 255) * (image.high - image.low), 256, 1, image);
    bar.querySelector(".name").textContent = title;
    bar.querySelector("canvas").setAttribute("aria-label", `Colour bar of ${title}`);
    const { values, decimals } = image.kind === "chance"
      ? { values: [0, 0.25, 0.5, 0.75, 1], decimals: 2 } : ticks(image.low, image.high, 4);
    label(bar.querySelector(".ticks"), values, (v) => (100 * (v - image.low)) / (image.high - image.low), "left",
      (v) => image.kind === "chance" ? `${100 * v} %` : withDecimals(v, decimals));
  }

  function label(element, values, place, side, text) {
    element.replaceChildren(...values.map((v) => {
      const span = document.createElement("span");
      span.style[side] = `${place(v)}%`;
      // A centred label at the very end would stick out of the page.
      if (side === "left") span.style.transform = `translateX(${place(v) < 2 ? 0 : place(v) > 98 ? -100 : -50}%)`;
      span.textContent = text(v);
      return span;
    }));
  }

  // The two pictures

  const pictures = [...document.querySelectorAll(".picture")];
  const chosen = () => images[document.querySelector("#shown input:checked").value];

  function setUpPicture(picture) {
    const stage = picture.querySelector(".stage");
    stage.style.aspectRatio = `${columns} / ${rows}`;
    stage.classList.toggle("crisp", columns < 400); // more pixels than dots are better averaged
    const half = [(columns * step) / 2, (rows * step) / 2];
    const { values: xs, decimals: dx } = ticks(-half[0], half[0], 5);
    label(picture.querySelector(".axis.x"), xs, (x) => 50 + (50 * x) / half[0], "left",
      (x) => withDecimals(x, dx));
    const { values: ys, decimals: dy } = ticks(-half[1], half[1], 5);
    label(picture.querySelector(".axis.y"), ys, (y) => 50 - (50 * y) / half[1], "top", (y) => withDecimals(y, dy));
  }

  function showImages() {
    const base = chosen(), other = images[byId("other").value], viewer = byId("viewer");
    paint(viewer.querySelector(".base"), (i) => base.values[i], columns, rows, base, seen);
    paint(viewer.querySelector(".overlay"), (i) => other.values[i], columns, rows, other, seen);
    paintBar(byId("bar-base"), base, `${base.title}: ${units[base.kind]}`);
    paintBar(byId("bar-overlay"), other, `${other.title}: ${units[other.kind]}`);
    showMix();
  }

  function showMix() { // the images are painted, and stacked: only the style changes
    const base = chosen(), other = images[byId("other").value], mix = byId("mix").valueAsNumber;
    const overlay = byId("viewer").querySelector(".overlay"), wiping = byId("mode").value === "wipe";
    // One bar is enough where both images share it.
    byId("bar-overlay").hidden = mix === 0 || base.kind === other.kind;
    byId("about").textContent = base.about + (mix > 0 ? ` ${other.title}: ${other.about}` : "");
    byId("mix").setAttribute("aria-valuetext", `${mix} % ${other.title}`);
    overlay.style.opacity = wiping ? 1 : mix / 100;
    overlay.style.clipPath = wiping ? `inset(0 0 0 ${100 - mix}%)` : "none";
    const line = byId("viewer").querySelector(".wipe");
    line.hidden = !wiping || mix === 0 || mix === 100;
    line.style.left = `${100 - mix}%`;
  }

  function showMap() {
    if (!std) return;
    const scale = { kind: "chance", low: 0, high: 1 };
    paint(byId("map").querySelector(".base"), (i) => chanceAbove(i, state.threshold), columns, rows, scale, seen);
    paintBar(byId("bar-map"), scale, `Chance of being above ${given(state.threshold)} /mm`);
  }

  async function showSinogram() {
    if (!data.sinogram) return;
    const { shape: [views, detectors], low, high } = data.sinogram;
    const explained = await steps(data.sinogram.explained), residuals = await steps(data.sinogram.residuals);
    const grey = { kind: "attenuation", low, high }, scale = { kind: "error", low: -4, high: 4 };
    if (data.sinogram.measured) {
      const measured = await steps(data.sinogram.measured);
      paint(byId("measured"), (i) => measured[i], detectors, views, grey);
      paintBar(byId("bar-measured"), grey, "Line integral, no unit");
    }
    paint(byId("sinogram"), (i) => explained[i], detectors, views, grey);
    paintBar(byId("bar-sinogram"), grey, "Line integral, no unit");
    paint(byId("residuals"), (i) => residuals[i], detectors, views, scale);
    paintBar(byId("bar-residuals"), scale, "Measured minus explained, in units of the noise");
  }

  // Answers

  function element(tag, text, name) {
    const made = document.createElement(tag);
    made.textContent = text;
    if (name) made.className = name;
    return made;
  }

  function table(pairs) {
    const made = document.createElement("table");
    for (const [name, value] of pairs) {
      const head = element("th", name);
      head.scope = "row";
      made.insertRow().append(head, element("td", value));
    }
    return made;
  }

  function showPixel() {
    const i = state.row * columns + state.column;
    const place = `x ${length(toX(state.column))} mm, y ${length(toY(state.row))} mm`;
    const facts = [["row and column, from 0", `${state.row}, ${state.column}`]];
    let big = `${plain(mean[i])} /mm`;
    if (std) {
      const [value, half] = withError(mean[i], WIDTH_95 * std[i]);
      big = `${value} ± ${half}\u00a0/mm`;
      const decimals = decimalsFor(WIDTH_95 * std[i] || spread / 100);
      const ends = [-1, 1].map((sign) => withDecimals(mean[i] + sign * WIDTH_95 * std[i], decimals));
      facts.unshift(["95 % interval", `${ends[0]} to ${ends[1]} /mm`],
        [`chance of being above ${given(state.threshold)} /mm`, percent(chanceAbove(i, state.threshold))]);
    }
    for (const image of data.images) {
      if (image === data.images[0] || image.name === "std") continue;
      facts.push([image.title, Number.isFinite(image.values[i]) ? `${plain(image.values[i])} /mm` : "–"]);
    }
    if (!seen(i)) facts.push(["field of view", "outside: nothing here was compared"]);
    byId("pixel").replaceChildren(element("div", place), element("div", big, "big"), table(facts));
    for (const readout of document.querySelectorAll(".readout .value")) {
      readout.replaceChildren(element("strong", big), element("span", ` at ${place}`));
    }
    for (const cross of document.querySelectorAll(".cross")) {
      box(cross, state.column, state.column + 1, state.row, state.row + 1);
    }
  }

  function showRegion() {
    const { x0, x1, y0, y1 } = state.region;
    const marks = document.querySelectorAll(".region");
    for (const mark of marks) {
      box(mark, Math.min(x0, x1) / step + columns / 2, Math.max(x0, x1) / step + columns / 2,
        rows / 2 - Math.max(y0, y1) / step, rows / 2 - Math.min(y0, y1) / step);
    }
    const pixels = regionPixels(state.region), output = byId("region");
    if (pixels.length === 0) {
      output.replaceChildren(element("div", "No pixel has its centre in this region."));
      return;
    }
    const answers = regionAnswers(pixels, state.threshold);
    const size = `${pixels.length} pixel${pixels.length > 1 ? "s" : ""}, ${area(pixels.length * step * step)} mm²`;
    const above = `area above ${given(state.threshold)} /mm`;
    if (answers.half === undefined) {
      const facts = std ? [[above, `${area(answers.area)} mm²`]] : []; // without error bars nothing sets a threshold
      output.replaceChildren(element("div", size), element("div", `mean ${plain(answers.mean)} /mm`, "big"), table(facts));
      return;
    }
    const [value, half] = withError(answers.mean, answers.half);
    if (document.querySelector(".drawing")) { // on a phone the card is far away
      for (const readout of document.querySelectorAll(".readout .value")) {
        readout.replaceChildren(element("strong", `mean ${value} ± ${half}\u00a0/mm`), element("span", ` of ${size}`));
      }
    }
    output.replaceChildren(element("div", size), element("div", `mean ${value} ± ${half}\u00a0/mm`, "big"),
      table([[above, `${area(answers.area)} mm²`],
        ["its 95 % interval", `${area(answers.areaLow)} to ${area(answers.areaHigh)} mm²`],
        ["area of the image shown", `${area(answers.imageArea)} mm²`]]));
    if (answers.imageArea < answers.areaLow || answers.imageArea > answers.areaHigh) {
      const near = pixels.filter((i) => Math.abs(mean[i] - state.threshold) <= WIDTH_95 * std[i]).length;
      output.append(element("div", `The threshold is within the error bars of ${Math.round((100 * near) / pixels.length)} % ` +
        "of the region: this area is biased and its interval too narrow.", "small"));
    }
  }

  function box(mark, left, right, top, bottom) { // in pixels from the top left corner
    Object.assign(mark.style, {
      left: `${(100 * left) / columns}%`, width: `${(100 * (right - left)) / columns}%`,
      top: `${(100 * top) / rows}%`, height: `${(100 * (bottom - top)) / rows}%`,
    });
  }

  // What the reader does

  function inspect(row, column) {
    state.row = Math.max(0, Math.min(rows - 1, row));
    state.column = Math.max(0, Math.min(columns - 1, column));
    showPixel();
  }

  function setThreshold(value, from) {
    if (!Number.isFinite(value)) return;
    state.threshold = value;
    if (from !== "number") byId("threshold").value = Number(value.toPrecision(4));
    if (from !== "slider") byId("threshold-slider").value = value;
    byId("threshold-slider").setAttribute("aria-valuetext", `${given(value)} per millimetre`);
    showMap();
    showPixel();
    showRegion();
  }

  function setRegion(region) {
    state.region = region;
    // To a hundredth of a pixel or better: corners are drawn along the edges of pixels, half of one from a centre.
    const digits = Math.max(0, Math.ceil(2 - Math.log10(step)));
    for (const [name, value] of Object.entries(region)) byId(name).value = Number(value.toFixed(digits));
    showRegion();
  }

  function pixelAt(stage, event) {
    const frame = stage.getBoundingClientRect();
    const clamp = (share, count) => Math.max(0, Math.min(count - 1, Math.floor(share * count)));
    return [clamp((event.clientY - frame.top) / frame.height, rows),
      clamp((event.clientX - frame.left) / frame.width, columns)];
  }

  function listen(stage) {
    let start = null, moved = false;
    const mayDraw = (event) => event.pointerType === "mouse" || stage.classList.contains("drawing");
    stage.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      start = pixelAt(stage, event);
      moved = false;
      inspect(...start);
      if (mayDraw(event)) stage.setPointerCapture(event.pointerId);
    });
    stage.addEventListener("pointermove", (event) => {
      const [row, column] = pixelAt(stage, event);
      if (start && mayDraw(event)) {
        moved = moved || row !== start[0] || column !== start[1];
        if (!moved) return;
        const [low, high] = [[Math.min(row, start[0]), Math.min(column, start[1])],
          [Math.max(row, start[0]) + 1, Math.max(column, start[1]) + 1]];
        setRegion({ x0: (low[1] - columns / 2) * step, x1: (high[1] - columns / 2) * step,
          y0: (rows / 2 - high[0]) * step, y1: (rows / 2 - low[0]) * step });
      } else if (event.pointerType === "mouse") {
        inspect(row, column);
      }
    });
    for (const end of ["pointerup", "pointercancel"]) stage.addEventListener(end, () => { start = null; });
    stage.addEventListener("keydown", (event) => {
      const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
      const move = moves[event.key];
      if (!move || event.altKey || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      const far = event.shiftKey ? 10 : 1;
      inspect(state.row + far * move[0], state.column + far * move[1]);
    });
  }

  function setUpControls() {
    for (const [k, image] of data.images.entries()) {
      const tab = document.createElement("label"), radio = document.createElement("input");
      Object.assign(radio, { type: "radio", name: "shown", value: image.name, checked: k === 0 });
      tab.append(radio, element("span", image.title));
      byId("shown").append(tab);
      byId("other").append(new Option(image.title, image.name));
    }
    byId("other").value = ["fbp", "truth", "reference", "std"].find((name) => images[name]) ?? data.images[0].name;
    byId("compare").hidden = data.images.length === 1;
    for (const id of ["shown", "other"]) byId(id).addEventListener("input", showImages);
    for (const id of ["mode", "mix"]) byId(id).addEventListener("input", showMix);

    if (std) {
      const { low, high } = data.threshold, slider = byId("threshold-slider");
      Object.assign(slider, { min: low, max: high, step: (high - low) / 200 });
      slider.addEventListener("input", () => setThreshold(slider.valueAsNumber, "slider"));
      const number = byId("threshold");
      number.addEventListener("input", () => setThreshold(number.valueAsNumber, "number"));
    }
    for (const id of ["x0", "x1", "y0", "y1"]) {
      byId(id).addEventListener("input", () => {
        const region = Object.fromEntries(["x0", "x1", "y0", "y1"].map((name) => [name, byId(name).valueAsNumber]));
        if (!Object.values(region).every(Number.isFinite)) return;
        state.region = region;
        showRegion();
      });
    }
    for (const button of document.querySelectorAll(".draw")) {
      button.hidden = navigator.maxTouchPoints === 0; // a mouse draws at once, a finger scrolls
      button.addEventListener("click", () => {
        const on = button.getAttribute("aria-pressed") !== "true";
        for (const each of document.querySelectorAll(".draw")) each.setAttribute("aria-pressed", on);
        for (const stage of document.querySelectorAll(".stage")) stage.classList.toggle("drawing", on);
      });
    }
    byId("region-note").textContent = !std ? "This method gives no error bars, so there is no interval."
      : !samples ? "The result file holds no posterior samples, so there is no interval; reconstruct with inference.samples=100."
        : `± is a 95 % interval, from ${data.samples.count} images that are as likely as the true one`
          + (data.samples.count < data.samples.of ? ` (of ${data.samples.of} in the result file).` : ".");
    window.addEventListener("beforeprint", () => {
      for (const details of document.querySelectorAll("details")) details.open = true;
    });
  }

  setUpControls();
  pictures.forEach(setUpPicture);
  document.querySelectorAll(".stage").forEach(listen);
  showImages();
  await showSinogram();
  // A region to begin with: the middle third.
  const third = (count) => [Math.floor(count / 3), Math.ceil((2 * count) / 3)].map((n) => (n - count / 2) * step);
  const [x0, x1] = third(columns), [y0, y1] = third(rows);
  setRegion({ x0, x1, y0, y1 });
  if (std) setThreshold(state.threshold, "start");
  showPixel();
  document.documentElement.dataset.ready = "true"; // for tests: everything is drawn
})();
