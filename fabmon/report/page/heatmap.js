"use strict";
(() => {
  const source = document.getElementById("heat-data");
  if (!source) return;
  const heat = JSON.parse(source.textContent);
  const layers = heat.layers.map((layer) => ({
    ...layer,
    data: Uint8Array.from(atob(layer.data), (char) => char.charCodeAt(0)),
  }));
  const canvas = document.getElementById("heatmap");
  const scale = document.getElementById("scale");
  const tip = document.getElementById("tip");
  const buttons = [...document.querySelectorAll("[data-layer]")];
  const GUTTER = 150, AXIS = 18, ROOM = 640;
  const high = Math.max(2, Math.min(15, Math.floor(ROOM / heat.rows.length)));
  let chosen = 0, wide = 1;

  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function ramp() {
    const stops = style("--ramp").split(/\s+/).map((hex) =>
      [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)));
    const colours = [];
    for (let step = 0; step <= heat.full; step++) {
      const place = (step / heat.full) * (stops.length - 1);
      const low = Math.min(stops.length - 2, Math.floor(place));
      const mixed = stops[low].map((part, k) => part + (stops[low + 1][k] - part) * (place - low));
      colours.push(`rgb(${mixed.map(Math.round).join(",")})`);
    }
    return colours;
  }

  function sized(target, width, height) {
    const ratio = window.devicePixelRatio || 1;
    target.width = Math.round(width * ratio);
    target.height = Math.round(height * ratio);
    target.style.height = `${height}px`;
    const context = target.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    return context;
  }

  const clock = (ms) => new Date(ms).toISOString().slice(heat.dated ? 5 : 11, 19).replace("T", " ");

  function draw() {
    const width = canvas.clientWidth, height = heat.rows.length * high + AXIS;
    const context = sized(canvas, width, height);
    const colours = ramp(), data = layers[chosen].data;
    wide = (width - GUTTER) / heat.bins;
    for (let row = 0; row < heat.rows.length; row++) {
      for (let bin = 0; bin < heat.bins; bin++) {
        const value = data[row * heat.bins + bin];
        context.fillStyle = value === heat.absent ? style.absent : colours[value];
        const x = Math.floor(GUTTER + bin * wide), end = Math.floor(GUTTER + (bin + 1) * wide);
        context.fillRect(x, row * high, Math.max(1, end - x), high > 5 ? high - 1 : high);
      }
    }
    context.fillStyle = style("--muted");
    let free = 0, before = "";
    heat.rows.forEach((name, row) => {
      const y = Math.max(6, row * high + high / 2);
      const label = high < 11 ? name.split(" ")[0] : name;
      if (y < free || label === before) return;
      context.fillText(label.slice(0, 24), 0, y);
      [free, before] = [y + 11, label];
    });
    const marks = Math.max(1, Math.min(8, Math.floor((width - GUTTER) / 110)));
    for (let mark = 0; mark < marks; mark++) {
      const bin = Math.floor((mark * heat.bins) / marks);
      context.fillText(clock(heat.from_ms + bin * heat.bin_ms), GUTTER + bin * wide, height - 8);
    }
    legend(colours);
    buttons.forEach((button, place) => button.setAttribute("aria-pressed", String(place === chosen)));
  }

  function legend(colours) {
    const context = sized(scale, 320, 34);
    for (let x = 0; x < 200; x++) {
      context.fillStyle = colours[Math.round((x / 199) * heat.full)];
      context.fillRect(x, 0, 1, 14);
    }
    context.fillStyle = style.absent;
    context.fillRect(230, 0, 14, 14);
    context.fillStyle = style("--muted");
    context.fillText("0", 0, 24);
    context.fillText("100 %", 170, 24);
    context.fillText("absent", 250, 8);
  }

  function point(event) {
    const box = canvas.getBoundingClientRect();
    const x = event.clientX - box.left, y = event.clientY - box.top;
    const bin = Math.floor((x - GUTTER) / wide), row = Math.floor(y / high);
    tip.hidden = !(bin >= 0 && bin < heat.bins && row >= 0 && row < heat.rows.length);
    if (tip.hidden) return;
    const lines = layers.map((layer) => {
      const value = layer.data[row * heat.bins + bin];
      const said = value === heat.absent ? "absent" : `${((value / heat.full) * 100).toFixed(0)} %`;
      return `${layer.title}: ${said}`;
    });
    tip.textContent = [`${heat.rows[row]}  ${clock(heat.from_ms + bin * heat.bin_ms)}`, ...lines].join("\n");
    tip.style.left = `${Math.min(x + 14, box.width - tip.offsetWidth - 4)}px`;
    tip.style.top = `${y + 14}px`;
  }

  function refresh() {
    style.absent = style("--absent");
    draw();
  }
  buttons.forEach((button, place) => button.addEventListener("click", () => {
    chosen = place;
    refresh();
  }));
  canvas.addEventListener("mousemove", point);
  canvas.addEventListener("mouseleave", () => { tip.hidden = true; });
  window.addEventListener("resize", refresh);
  window.addEventListener("beforeprint", refresh);
  window.addEventListener("afterprint", refresh);
  matchMedia("print").addEventListener("change", refresh);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", refresh);
  refresh();
})();
