"use strict";
(function () {
  const budgets = JSON.parse(document.getElementById("other-budgets").textContent);
  const steps = budgets.steps;
  const input = document.getElementById("budget");
  const shown = document.getElementById("budget-shown");
  const status = document.getElementById("budget-status");
  function sentence(step) {
    const risks = step.risks.map(function (text, i) {
      return text + " with prior " + budgets.priors[i];
    });
    return "With " + shown.textContent + ", the risk is " + risks.join(", ") + ".";
  }
  function show() {
    const step = steps[Number(input.value)];
    shown.textContent = step.cost + (step.chosen ? ", as released" : "");
    input.setAttribute("aria-valuetext", shown.textContent);
    step.risks.forEach(function (text, i) {
      document.getElementById("risk-" + i).textContent = text;
    });
    step.errors.forEach(function (text, i) {
      document.getElementById("error-" + i).textContent = text;
    });
  }
  document.getElementById("slider").hidden = false;
  input.addEventListener("input", show);
  // Screen readers announce where the slider stops, not each step on the way.
  input.addEventListener("change", function () { status.textContent = sentence(steps[Number(input.value)]); });
  show();
})();
