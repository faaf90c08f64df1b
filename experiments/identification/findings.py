"""Which algorithm is it? Its card on the page, and what each binary found, in two sentences.

Fields are described in ``experiments.page.words``: ``{name}`` is a claim of the binary at lab.
"""

from experiments.papers import Paper

FINDINGS = {
    "planted": (
        "With predictions changed by .05, the right class is named for {right_1_05:.0%} and {right_2_05:.0%} of 312 "
        "learners whose algorithm is known (two seeds). A wrong one is named for {wrong_1_05:.0f} and {wrong_2_05:.0f} "
        "of them, and any name is given to {outsiders_1_05:.0f} and {outsiders_2_05:.0f} of 150 learners that are no "
        "algorithm of the list."
    ),
    "von_oswald": (
        "One layer of linear attention is named gradient descent in {weight_maps_looped_1_class:.0%} of the members, "
        "three loops GD++ in {weight_maps_looped_3_class:.0%}. On inputs that nothing was fitted on, the named "
        "algorithm predicts the loss better than the training loss does in {out_of_range:.0%} of cases."
    ),
}

PAPER = Paper(
    "identification",
    "This laboratory",
    "Which algorithm is it?",
    "Which algorithm does an in-context learner compute?",
    "The function identify fits a list of algorithms to the predictions of a learner on linear regression, and names "
    "the smallest one that explains them or refuses with a reason. How often a name is wrong is not measured yet: the "
    "bars are set (right for at least 85 % of 312 known learners, no name for any of 150 others, with predictions "
    "changed by .05), the runs are not made.",
    "planted/planted",
    {
        "planted/planted": "Share of right, refused and wrong names, by family and by the change of predictions.",
        "von_oswald/von_oswald": (
            "Residual factor of the networks of von Oswald et al. 2022 over the eigenvalues of the context, and the "
            "algorithm that each is called."
        ),
    },
)
