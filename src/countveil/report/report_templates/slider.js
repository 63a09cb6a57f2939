"use strict";
(function () {
  const budgets = JSON.parse(document.getElementById("other-budgets").textContent);
  const steps = budgets.steps;
  const input = document.getElementById("budget");
  const shown = document.getElementById("budget-shown");
  const status = document.getElementById("budget-status");
  // As words.brief and words.multiple write them.
  function number(value) {
    if (value === null) return "none";
    if (value >= 9.95 || Number.isInteger(value)) return Math.round(value).toLocaleString("en-US");
    return value.toPrecision(2);
  }
  function times(value) {
    if (Math.abs(value - 1) >= 0.05) return number(value);
    for (let digits = 2; digits < 7; digits += 1) {
      const text = String(Number(value.toPrecision(digits)));
      if (text !== "1") return text;
    }
    return "1";
  }
  function sentence(step) {
    const risks = step.risks.map(function (value, i) {
      return times(value) + " with prior " + budgets.priors[i];
    });
    return "With " + shown.textContent + ", the risk is " + risks.join(", ") + ".";
  }
  function show() {
    const step = steps[Number(input.value)];
    shown.textContent = step.cost + (step.chosen ? ", as released" : "");
    input.setAttribute("aria-valuetext", shown.textContent);
    step.risks.forEach(function (value, i) {
      document.getElementById("risk-" + i).textContent = times(value);
    });
    step.errors.forEach(function (value, i) {
      document.getElementById("error-" + i).textContent = number(value);
    });
  }
  document.getElementById("slider").hidden = false;
  input.addEventListener("input", show);
  // Screen readers announce where the slider stops, not each step on the way.
  input.addEventListener("change", function () { status.textContent = sentence(steps[Number(input.value)]); });
  show();
})();
