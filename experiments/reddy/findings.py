"""Reddy 2023: its card on the page, and what each binary found, in two sentences.

Fields are described in ``experiments.page.words``: ``{name}`` is a claim of the binary at lab.
"""

from experiments.papers import Paper

FINDINGS = {
    "transition": (
        "All members learn in context, after a long wait: accuracy then goes half of its way within {abrupt_novel:.0%} "
        "of that wait. Answers with some label of the context come first, {order_cla_ila1:.2f} of the wait before the "
        "attention of the first layer changes."
    ),
    "clamping": (
        "Holding the classifier for the first 1,500 steps delays the jump by {cla_delays:.0%} of the hold; holding the "
        "attention of the first layer, which hardly moves in that time anyway, delays it by {ila1_does_not_delay:.0%}. "
        "With a perfect first layer from the start {wait_stays:.0%} of the wait remains, and learning to answer with a "
        "label of the context takes {slow_phase_stays:.1f} times as long."
    ),
    "interventions": (
        "If the classifier is held past the jump of the untouched network, {cla_necessary_4:.0%} of the wait remains "
        "at four pairs; if the first layer's attention is held, {ila1_last_4:.0%}. With a trained classifier and "
        "values given, {answer_not_sufficient_4:.0%} of it remains."
    ),
    "data_dependence": (
        "The data decide: from the fewest classes to the most the in-context score (0 is guessing, 1 perfect) rises by "
        "{network_classes_in_context:.2f}, and in-weights accuracy changes by {network_classes_in_weights:.2f}. At a "
        "rank-frequency exponent of 1 both models end by learning in context: what they keep in weights is "
        "{network_both:.2f} and {reduced_both:.2f} where .5 was asked."
    ),
    "label_count": (
        "With more labels than pairs networks learn in context ({more_labels_4:.0%} at four pairs, {more_labels_8:.0%} "
        "at eight), the later the fewer labels there are. With as many labels as pairs it takes longer by a factor of "
        "at least 2 to the power {delay_4:.1f} at four pairs, at eight {as_many_labels_8:.0%} of the networks learn."
    ),
    "mixtures": (
        "At all four mixtures both solutions are learned, with an accuracy of {in_context:.2f} in context and "
        "{in_weights:.2f} in weights at the worst one, and neither is lost (largest fall, mean over members, "
        "{kept:.3f}). With a larger "
        "share of novel classes the network learns in context sooner (log2 of the ratio of steps {novel_share:.1f}) "
        "and in weights later ({trained_share:+.1f})."
    ),
    "reduced_model": (
        "A model of three scalars jumps as the network does, within {sharp_three:.0%} of the steps up to there, in "
        "{solves_three:.0%} of the members. With nothing fitted its path is that of the mean-field flow to "
        "{path_three:.1%} and its loss at the cliff that of the flow (ratio {loss_three:.2f}), but its jump takes "
        "{clock_three:.1f} times as long."
    ),
    "landscape": (
        "With more labels than pairs the loss begins on a shelf, whose slope is that of a closed form (relative error "
        "{slope_mean_field:.0e}), and ends in a cliff. With as many labels as pairs the slope at the origin is "
        "{critical_mean_field:.0f}, and the time to leave this saddle grows as log(1/size) of the start, at the rate "
        "of a closed form (ratio {escape_mean_field:.3f})."
    ),
    "curriculum": (
        "With equally many samples, contexts that grow change the time of the jump by {length:.0%} (median). Novel "
        "classes first ({novel:+.0%}) and few labels first ({labels:+.0%}) change it by less than a tenth."
    ),
}

PAPER = Paper(
    "reddy",
    "Reddy 2023",
    "The mechanistic basis of data dependence and abrupt learning in an in-context classification task",
    "Why does in-context learning set in abruptly, and what decides whether it does?",
    "The network must first learn to answer with some label of the context: if the classifier, which learns this, is "
    "held past the jump of the untouched network, {interventions.cla_necessary_4:.0%} of the wait remains; if the "
    "attention of the first layer is held, {interventions.ila1_last_4:.0%}. Whether it jumps depends on the data: many "
    "classes, and clearly more labels than pairs.",
    "interventions/interventions",
    {
        "transition/curves": (
            "Accuracy, loss and progress measures: a long wait, then a jump; answers with labels "
            "of the context (CLA) and attention to labels (TLA2) rise long before."
        ),
        "transition/attention": (
            "Attention half-way through the wait and at the end: an induction head, labels attending to the item "
            "before them and the target to the right label, is there at the end only."
        ),
        "clamping/delays": (
            "Delay of the jump by what was held for the first 1,500 steps: the classifier delays it most; the "
            "attention of the first layer, which would hardly have moved then, does not delay it."
        ),
        "clamping/clamping": (
            "Accuracy and progress measures while one part is held: while the classifier is held, the attention of "
            "the other parts hardly moves."
        ),
        "interventions/interventions": (
            "Delay of the jump over the length of the hold, and what remains of the wait after the longest hold and "
            "where a trained part is given."
        ),
        "data_dependence/classes": (
            "Accuracy in context and in weights by number of classes and burstiness: many classes and many copies "
            "make the network learn in context."
        ),
        "data_dependence/exponent": (
            "Accuracy by rank-frequency exponent after 40,000 steps: both models learn in context up to 1; at 1.5 the "
            "network does both, and has not converged."
        ),
        "data_dependence/spread": (
            "Accuracy by spread within a class: the larger it is, the nearer the network is to learning in context "
            "after 6,000 steps, when it has not converged; the reduced model learns in context at every spread."
        ),
        "label_count/label_count": (
            "Accuracy of each member by number of labels, and when it learns: the fewer labels there are, the later; "
            "with as many as pairs late or not at all."
        ),
        "mixtures/mixtures": (
            "Accuracy over training at four mixtures of data: both solutions are learned and neither is lost."
        ),
        "reduced_model/curves": (
            "The model of two or three scalars jumps as the network does, and its scalars follow the flow of the "
            "mean-field loss."
        ),
        "reduced_model/measures": (
            "Progress measures around the jump: attention to labels leads with three scalars and not with two."
        ),
        "reduced_model/equal": (
            "As many labels as pairs: whether the reduced model jumps depends on where its scalars start."
        ),
        "landscape/landscape": (
            "The loss with more labels than pairs, and the flow on it: a flat shelf that ends in a cliff."
        ),
        "landscape/waits": (
            "Loss along the flow, and time until the cliff by pairs and labels: it lies on the closed form."
        ),
        "landscape/saddle": (
            "As many labels as pairs: the origin is a saddle, and the time to leave it is predicted from the start."
        ),
        "landscape/landscape_equal": "The loss with as many labels as pairs: no slope at the origin.",
        "curriculum/curriculum": (
            "Accuracy and onset under three curricula: growing the context length brings the jump earlier, the other "
            "two do not."
        ),
    },
)
