"""Which algorithm is it? Its card on the page, and what each binary found, in two sentences.

Fields are described in ``experiments.page.words``: ``{name}`` is a claim of the binary at lab.
"""

from experiments.papers import Paper

FINDINGS = {
    "planted": (
        "With predictions changed by .01, {own_5_01:.0%} and {own_6_01:.0%} of 324 learners whose algorithm is known "
        "(two seeds) get its name, or that of a family that contains it, and {equal_5_01:.0%} and {equal_6_01:.0%} "
        "with names that are equal within the disturbance. Changed by .03, these are {own_5_03:.0%} and "
        "{own_6_03:.0%}, and {equal_5_03:.0%} and {equal_6_03:.0%}. At .03 a wrong name is given to {wrong_5_03:.1%} "
        "and {wrong_6_03:.1%} (by the published way to {published_wrong:.0%}), and any name to {outsiders_5_03:.0f} "
        "and {outsiders_6_03:.0f} of 150 learners that are no algorithm of the list."
    ),
    "von_oswald": (
        "As expected, two loops are named GD (for them the same as GD++) in {multi_step_looped_2_class:.0%} of ten "
        "members and three loops GD++ in {weight_maps_looped_3_class:.0%}; one layer is GD by an asymmetry of at most "
        "{weight_maps_looped_1_asymmetry:.2f} of what random weights have; but seven of ten members with ten loops are "
        "named gradient flow, five free layers are named GD++ in {multi_step_free_5_class:.0%}, and two softmax heads "
        "softmax regression, not a step on centred inputs. At input scales on which nothing was fitted, the name "
        "predicts a member's loss better than its training loss does in {out_of_range:.0%} of members and scales."
    ),
    "fingerprint": (
        "On contexts on which nothing was fitted, the residual factor of three passes agrees with that of the named "
        "algorithm to {three_passes:.1g} inside the training range. That of one layer, which averaged over rotations "
        "can be nothing but a gradient step, agrees to {one_layer:.1g} inside this range and to "
        "{one_layer_beyond:.1g} up to four times its end."
    ),
}

PAPER = Paper(
    "identification",
    "This laboratory",
    "Which algorithm is it?",
    "What does a network compute, and how often is the name that it is given wrong?",
    "A network is measured on prompts of known spectrum, and every algorithm of a list is fitted. The residual factor "
    "of three passes of one layer of linear attention agrees with that of the algorithm that is named to "
    "{fingerprint.three_passes:.1g}.",
    "fingerprint/looped_3",
    {
        "fingerprint/looped_1": (
            "One layer: the measured residual factor of ten members falls linearly with the eigenvalue, as that of one "
            "step of gradient descent, and stays so outside the training range."
        ),
        "fingerprint/looped_3": (
            "Three passes of the same layer: the measured factor, that of the named algorithm and the two best filters "
            "of other classes; below, how far every family is from the network."
        ),
        "planted/planted": (
            "What learners with a known algorithm are called, by family and by the share by which their predictions "
            "were changed."
        ),
        "von_oswald/von_oswald": (
            "The measured residual factor of the networks of von Oswald et al. 2022, ten members each at most "
            "(controls: twenty): up to three loops they lie on one line, at five free layers they do not."
        ),
    },
)
