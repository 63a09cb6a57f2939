"use strict";
(function () {
  const session = JSON.parse(document.getElementById("session").textContent);
  const first = session.settings;
  const form = document.getElementById("controls");
  const at = function (id) { return document.getElementById(id); };
  const weights = Array.from(document.querySelectorAll(".weight"));
  const figures = Array.from(document.querySelectorAll("[data-chart]"));
  const moved = new Map();
  let last = null, filled = null, chartKeys = {}, seen = new Set(), busy = false, again = false, painting = false, calm = 0, timers = [];

  // Settings: the contents of the form; a weight that was not moved keeps its exact fraction.
  function settings() {
    const attack = at("attack"), chosen = attack.options[attack.selectedIndex];
    const attribute = chosen.hasAttribute("data-attribute") ? chosen.value : null;
    return {
      mechanism: at("mechanism").value,
      amount: at("amount").value.trim(),
      weights: first.weights.map(function (pair) { return [pair[0], moved.get(pair[0]) || pair[1]]; }),
      neighbors: form.elements.neighbors.value,
      prior: at("prior").value.trim(),
      level: at("level").value,
      attack: attribute === null ? chosen.value : "unknown attribute",
      attribute: attribute,
    };
  }

  function value(text) {
    const parts = text.split("/").map(Number);
    return parts.length === 2 ? parts[0] / parts[1] : parts[0];
  }
  function digits(number) { return String(Number(number.toPrecision(3))); }
  function percent(share) { return (100 * share).toFixed(1) + " %"; }

  async function ask(path, body) {
    let response;
    try {
      response = await fetch(session.base + path, {
        method: "POST", credentials: "same-origin", cache: "no-store",
        headers: { "Content-Type": "application/json", "X-Countveil-Key": session.key },
        body: JSON.stringify(body),
      });
    } catch (error) {
      throw new Error("The explorer has stopped. Run `countveil explore` again and open the address it shows.");
    }
    const text = await response.text();
    let answer;
    try { answer = JSON.parse(text); } catch (error) { throw new Error("Unexpected answer from the explorer: " + text); }
    if ("refused" in answer) throw Object.assign(new Error(answer.refused), { fields: answer.fields || [] });
    return answer;
  }
  function askPlan(path, body) { return ask("/plans/" + session.plan + path, body); }

  // Numbers: one call at a time, always for the latest settings.
  async function update() {
    if (busy) { again = true; return; }
    busy = true;
    do {
      again = false;
      const current = settings();
      try {
        show(await askPlan("/numbers", current));
        last = current;
      } catch (error) {
        if (!again) refuse(error);
      }
    } while (again);
    busy = false;
    settle();
  }

  function show(answer) {
    at("message").hidden = true;
    mark([]);
    document.body.classList.remove("old");
    at("sentence").textContent = answer.sentence;
    at("verdict").hidden = false;
    at("verdict").textContent = answer.verdict.text;
    at("verdict").className = "verdict " + answer.verdict.status.replace(" ", "-");
    at("ladder").hidden = false;
    at("ladder").textContent = answer.ladder;
    at("short").textContent = answer.short;
    at("cost").replaceChildren.apply(at("cost"), answer.cost.map(function (line) {
      const row = document.createElement("div");
      ["dt", "dd"].forEach(function (tag, i) {
        row.appendChild(document.createElement(tag)).textContent = line[i];
      });
      return row;
    }));
    at("numbers").innerHTML = answer.html;
    weights.forEach(function (input, i) {
      const share = answer.shares[input.dataset.level] || "0";
      at("share-" + i).textContent = percent(value(share));
      input.setAttribute("aria-valuetext", percent(value(share)) + " of the budget");
    });
    chartKeys = answer.charts;
    figures.forEach(function (figure) {
      figure.hidden = !(figure.dataset.chart in chartKeys);
      figure.setAttribute("aria-busy", chartKeys[figure.dataset.chart] !== figure.dataset.shown);
    });
  }

  // Mark the controls that hold an invalid value, for readers who cannot see the red border as well.
  function mark(fields) {
    document.querySelectorAll("[data-field]").forEach(function (control) {
      if (fields.includes(control.dataset.field)) control.setAttribute("aria-invalid", "true");
      else control.removeAttribute("aria-invalid");
    });
  }

  function refuse(error) {
    const kept = at("sentence").textContent !== "Computing…";
    at("message").textContent = error.message + (kept ? "\nThe answer below is the previous one." : "");
    mark(error.fields || []);
    at("message").hidden = false;
    document.body.classList.toggle("old", kept);
  }

  // Charts: once nothing moves, redraw those in view that have changed, one at a time; then the rest.
  function settle() {
    timers.forEach(clearTimeout);
    calm = 0;
    timers = [200, 1000].map(function (wait, i) {
      return setTimeout(function () { calm = i + 1; if (calm === 1) fill(); paint(); }, wait);
    });
  }
  // Risks of other levels: once nothing moves, because they may take longer than a slider can wait.
  async function fill() {
    const current = last;
    if (current === null || current === filled) return;
    try {
      const answer = await askPlan("/levels", current);
      if (current !== last) return;
      at("by-level").innerHTML = answer.by_level;
      filled = current;
      look();
      simulate();
    } catch (error) {
      if (current === last) refuse(error);
    }
  }
  // Every lens: computed when it is opened, for the current settings.
  let looked = null;
  async function look() {
    const current = last;
    if (!at("lenses").open || current === null || current === looked) return;
    looked = current;
    try {
      const answer = await askPlan("/lenses", current);
      if (current === last) at("lens-sections").innerHTML = answer.html;
    } catch (error) {
      if (current === last) at("lens-sections").textContent = error.message;
    }
  }
  at("lenses").addEventListener("toggle", look);
  // Published tables: releases are simulated while it is open and nothing moves, one call at a time.
  let simulated = null, simulating = false;
  async function simulate() {
    const place = at("published-section"), waiting = place.dataset.waiting;
    if (simulating) return;
    simulating = true;
    while (at("published").open && calm > 0 && last !== null && last !== simulated) {
      const current = last;
      place.setAttribute("aria-busy", "true");
      place.textContent = waiting;
      try {
        const answer = await askPlan("/published", current);
        if (current === last) place.innerHTML = answer.html;
      } catch (error) {
        if (current === last) place.textContent = error.message;
      }
      simulated = current;
    }
    place.setAttribute("aria-busy", String(simulated !== last));
    simulating = false;
  }
  at("published").addEventListener("toggle", simulate);
  async function paint() {
    if (painting) return;
    painting = true;
    let figure;
    while (!busy && calm > 0 && (figure = figures.find(isStale))) {
      const name = figure.dataset.chart, key = chartKeys[name];
      try {
        const answer = await askPlan("/charts/" + name, last);
        if (answer.key !== chartKeys[name]) continue;
        figure.querySelector(".drawn").innerHTML = answer.svg;
        figure.querySelector("figcaption").textContent = answer.caption;
        figure.querySelector(".table").innerHTML = answer.table;
      } catch (error) {
        figure.querySelector(".drawn").textContent = error.message;
      }
      figure.setAttribute("aria-busy", "false");
      figure.dataset.shown = key;
    }
    painting = false;
  }
  function isStale(figure) {
    const name = figure.dataset.chart;
    return name in chartKeys && (calm === 2 || calm === 1 && seen.has(figure)) && chartKeys[name] !== figure.dataset.shown;
  }
  const watcher = new IntersectionObserver(function (entries) {
    entries.forEach(function (entry) {
      if (entry.isIntersecting) seen.add(entry.target); else seen.delete(entry.target);
    });
    paint();
  }, { rootMargin: "300px" });
  figures.forEach(function (figure) { watcher.observe(figure); });
  new IntersectionObserver(function (entries) {
    at("short").hidden = entries[0].isIntersecting || at("short").textContent === "";
  }).observe(at("answer"));

  // Controls: keep sliders and boxes in step.
  function placeSliders() {
    const amount = value(at("amount").value), prior = value(at("prior").value);
    if (amount > 0) at("amount-slider").value = Math.log10(amount);
    if (prior > 0 && prior < 1) at("prior-slider").value = prior;
    describe();
  }
  function describe() {
    at("currency").textContent = session.currency[at("mechanism").value];
    at("amount-slider").setAttribute("aria-valuetext", at("currency").textContent + " " + at("amount").value);
    at("prior-slider").setAttribute("aria-valuetext", at("prior").value);
  }
  at("amount-slider").addEventListener("input", function () {
    at("amount").value = digits(Math.pow(10, Number(at("amount-slider").value)));
  });
  at("prior-slider").addEventListener("input", function () {
    at("prior").value = digits(Number(at("prior-slider").value));
  });
  ["amount", "prior"].forEach(function (id) { at(id).addEventListener("input", placeSliders); });
  at("mechanism").addEventListener("input", function () {
    // Convert between epsilon and the rho it implies, epsilon²/2.
    const amount = value(at("amount").value), currency = session.currency[at("mechanism").value];
    if (amount > 0 && currency !== at("currency").textContent)
      at("amount").value = digits(currency === "epsilon" ? Math.sqrt(2 * amount) : amount * amount / 2);
    placeSliders();
  });
  weights.forEach(function (input) {
    input.addEventListener("input", function () { moved.set(input.dataset.level, input.value + "/100"); });
  });
  form.addEventListener("input", function (event) {
    if (event.target.closest("fieldset").querySelector("#save")) return;
    describe();
    update();
  });
  form.addEventListener("submit", function (event) { event.preventDefault(); });
  form.addEventListener("reset", function () {
    moved.clear();
    setTimeout(function () { placeSliders(); update(); });
  });

  // Files.
  function say(text) { at("file-status").textContent = text; }
  at("save").addEventListener("click", async function () {
    try {
      const body = { settings: settings(), name: at("save-name").value, replace: at("replace").checked };
      say((await askPlan("/save", body)).message);
    } catch (error) { say(error.message); }
  });
  async function open(body) {
    try {
      location.assign(session.base + "/?plan=" + (await ask("/open", body)).plan);
    } catch (error) { say(error.message); }
  }
  at("open").addEventListener("click", function () { open({ name: at("open-name").value }); });
  at("upload").addEventListener("change", async function () {
    const file = at("upload").files[0];
    if (file) open({ name: file.name, text: await file.text() });
  });

  placeSliders();
  update();
})();
