"use strict";
(function () {
  const budgets = JSON.parse(document.getElementById("other-budgets").textContent);
  const steps = budgets.steps;
  const input = document.getElementById("budget");
  const shown = document.getElementById("budget-shown");
  const status = document.getElementById("budget-status");
  function number(value) { return value === null ? "none" : String(Number(value.toPrecision(4))); }
  function sentence(step) {
    const risks = step.risks.map(function (value, i) {
      return number(value) + " with prior " + budgets.priors[i];
    });
    return "With " + shown.textContent + ", the risk is " + risks.join(", ") + ".";
  }
  function show() {
    const step = steps[Number(input.value)];
    shown.textContent = step.cost + (step.chosen ? ", as released" : "");
    input.setAttribute("aria-valuetext", shown.textContent);
    step.risks.forEach(function (value, i) {
      document.getElementById("risk-" + i).textContent = number(value);
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
