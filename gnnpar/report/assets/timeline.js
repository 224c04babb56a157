"use strict";
// Draws every <div class="timeline"> from the JSON beside it: zoom with the wheel, drag, keys + - 0 and arrows.
(function () {
  const ROW = 20, GAP = 12, LEFT = 64, AXIS = 22;
  const tip = document.getElementById("tip");

  function time(us) {
    return us >= 1e6 ? (us / 1e6).toPrecision(4) + " s" : us >= 1e3 ? (us / 1e3).toPrecision(4) + " ms" : us.toFixed(1) + " µs";
  }

  function colours(names) {
    const probe = document.createElement("i");
    document.body.appendChild(probe);
    const found = names.map(name => {
      probe.className = "c-" + name.replace(/ /g, "-");
      return getComputedStyle(probe).backgroundColor;
    });
    const style = getComputedStyle(document.documentElement);
    probe.remove();
    const ink = name => style.getPropertyValue(name).trim();
    return { of: found, ink: ink("--ink"), faint: ink("--faint"), rule: ink("--rule"), ground: ink("--ground"), path: ink("--imb1") };
  }

  function start(box) {
    const data = JSON.parse(document.getElementById(box.dataset.source).textContent);
    const canvas = box.querySelector("canvas"), pen = canvas.getContext("2d");
    const planned = data.lanes.some(lane => lane.rows[0].length);
    const rows = planned ? [0, 1, 2] : [1, 2];
    const tall = rows.length * ROW + GAP;
    let from = 0, to = data.end, shades = colours(data.categories);

    const top = rank => AXIS + rank * tall;
    const x = t => LEFT + (t - from) / (to - from) * (canvas.clientWidth - LEFT - 8);
    const t = px => from + (px - LEFT) / (canvas.clientWidth - LEFT - 8) * (to - from);

    function draw() {
      const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth, height = AXIS + data.lanes.length * tall;
      canvas.style.height = height + "px";
      canvas.width = Math.round(width * ratio); canvas.height = Math.round(height * ratio);
      pen.setTransform(ratio, 0, 0, ratio, 0, 0);
      pen.fillStyle = shades.ground; pen.fillRect(0, 0, width, height);
      pen.font = "11px system-ui, sans-serif"; pen.textBaseline = "middle";
      let step = Math.pow(10, Math.floor(Math.log10((to - from) / 4)));
      for (const factor of [1, 2, 5, 10]) if ((to - from) / (step * factor) <= 8) { step *= factor; break; }
      for (let tick = Math.ceil(from / step) * step; tick <= to; tick += step) {
        pen.strokeStyle = shades.rule; pen.beginPath(); pen.moveTo(x(tick), AXIS - 6); pen.lineTo(x(tick), height); pen.stroke();
        pen.fillStyle = shades.faint; pen.textAlign = "center"; pen.fillText(time(tick), Math.max(LEFT, x(tick)), 8);
      }
      data.lanes.forEach((lane, rank) => {
        pen.fillStyle = shades.ink; pen.textAlign = "left"; pen.fillText(lane.name, 6, top(rank) + ROW / 2);
        rows.forEach((row, place) => {
          const y = top(rank) + place * ROW;
          let last = -1;
          for (const [begin, length, category, text] of lane.rows[row]) {
            if (begin + length < from || begin > to) continue;
            const a = Math.max(LEFT, x(begin)), b = Math.min(width - 8, x(begin + length));
            if (b - last < 0.4) continue;  // under another one's pixel
            last = b;
            pen.globalAlpha = row === 0 ? 0.55 : 1;
            pen.fillStyle = shades.of[category];
            pen.fillRect(a, y + (row === 0 ? 5 : 1), Math.max(0.6, b - a - 0.4), ROW - (row === 0 ? 7 : 2));
            pen.globalAlpha = 1;
            const label = data.texts[text].split(",")[0];
            if (b - a > 7 * label.length + 6) {
              pen.fillStyle = row === 0 ? shades.ink : category === data.categories.length - 1 ? shades.faint : "#0b0d10"; pen.textAlign = "center";
              pen.fillText(label, (a + b) / 2, y + ROW / 2 + (row === 0 ? 1.5 : 0));
            }
          }
        });
      });
      pen.fillStyle = shades.path;
      for (const [rank, begin, length] of data.path) {
        if (begin + length < from || begin > to) continue;
        const a = Math.max(LEFT, x(begin)), b = Math.min(width - 8, x(begin + length));
        pen.fillRect(a, top(rank) + rows.length * ROW + 1, Math.max(0.6, b - a), 3);
      }
      pen.fillStyle = shades.ground; pen.fillRect(width - 8, AXIS, 8, height);
    }

    function find(px, py) {
      const rank = Math.floor((py - AXIS) / tall), place = Math.floor((py - AXIS - rank * tall) / ROW);
      const lane = data.lanes[rank];
      if (!lane || place < 0 || place >= rows.length || px < LEFT) return null;
      const now = t(px), slack = (to - from) / canvas.clientWidth;
      let best = null;
      for (const piece of lane.rows[rows[place]])
        if (piece[0] - slack <= now && now <= piece[0] + piece[1] + slack && (!best || piece[1] < best[1])) best = piece;
      return best && { piece: best, row: rows[place], lane };
    }

    function clamp() {
      const least = Math.min(data.end, 5), length = Math.min(data.end, Math.max(least, to - from));
      from = Math.max(0, Math.min(data.end - length, from)); to = from + length;
      draw();
    }
    function zoom(factor, at) {
      from = at - (at - from) * factor; to = at + (to - at) * factor;
      clamp();
    }
    function move(share) { const by = (to - from) * share; from += by; to += by; clamp(); }

    canvas.addEventListener("wheel", event => {
      if (!event.ctrlKey && !event.metaKey && Math.abs(event.deltaX) > Math.abs(event.deltaY)) { event.preventDefault(); move(event.deltaX / 600); return; }
      if (event.shiftKey || document.activeElement === canvas || event.ctrlKey || event.metaKey) {
        event.preventDefault(); zoom(Math.exp(event.deltaY / 300), t(event.offsetX));
      }
    }, { passive: false });
    let held = null;
    canvas.addEventListener("pointerdown", event => { held = [event.offsetX, from, to]; canvas.setPointerCapture(event.pointerId); canvas.focus({ preventScroll: true }); });
    canvas.addEventListener("pointerup", () => { held = null; });
    canvas.addEventListener("pointermove", event => {
      if (held) {
        const by = (held[0] - event.offsetX) / (canvas.clientWidth - LEFT - 8) * (held[2] - held[1]);
        from = held[1] + by; to = held[2] + by; clamp(); return;
      }
      const found = find(event.offsetX, event.offsetY);
      tip.style.display = found ? "block" : "none";
      if (!found) return;
      const [begin, length, category, text] = found.piece;
      const what = found.row === 0 ? "predicted " : "";
      tip.textContent = `${found.lane.name}: ${what}${data.texts[text]} — ${time(length)} from ${time(begin)}` + (found.row === 2 ? ` (${data.categories[category]})` : "");
      tip.style.left = Math.min(event.clientX + 14, window.innerWidth - 430) + "px"; tip.style.top = event.clientY + 16 + "px";
    });
    canvas.addEventListener("pointerleave", () => { tip.style.display = "none"; });
    canvas.addEventListener("keydown", event => {
      const acts = { "+": () => zoom(0.7, (from + to) / 2), "=": () => zoom(0.7, (from + to) / 2), "-": () => zoom(1.4, (from + to) / 2),
        "0": () => { from = 0; to = data.end; clamp(); }, ArrowLeft: () => move(-0.15), ArrowRight: () => move(0.15) };
      if (acts[event.key]) { event.preventDefault(); acts[event.key](); }
    });
    box.parentElement.querySelectorAll("button").forEach(button => button.addEventListener("click", () => {
      const act = button.dataset.act;
      if (act === "in") zoom(0.6, (from + to) / 2); else if (act === "out") zoom(1.7, (from + to) / 2); else { from = 0; to = data.end; clamp(); }
    }));
    window.addEventListener("resize", draw);
    const again = () => { shades = colours(data.categories); draw(); };
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
    window.addEventListener("beforeprint", () => { from = 0; to = data.end; again(); });
    draw();
    box.dataset.drawn = "true";
  }
  document.querySelectorAll(".timeline").forEach(start);
})();
