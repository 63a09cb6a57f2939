"""Sections of a release or a plan, as the tests ask for them one by one."""

from countveil.report.section_data import Subject
from countveil.report.sections import (
    error_section,
    homogeneity_section,
    intruder_section,
    loss_section,
    margin_section,
    public_section,
    realised_sections,
)


def intruder(release, shapes=None):
    return intruder_section.section(Subject(release.plan, release, shapes=shapes))


def margin(release):
    return margin_section.section(Subject(release.plan, release))


def error(plan):
    return error_section.section(Subject(plan))


def loss(plan):
    return loss_section.section(Subject(plan))


def homogeneity(plan):
    return homogeneity_section.section(Subject(plan))


def public(release):
    return public_section.section(Subject(release.plan, release))


def internal(plan, realised):
    subject = Subject(plan, realised=realised)
    made = (
        realised_sections.error(subject),
        realised_sections.everyone(subject),
        realised_sections.loss(subject),
        realised_sections.attack(subject),
    )
    return [section for section in made if section is not None]
