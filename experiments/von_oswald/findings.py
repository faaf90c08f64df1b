"""von Oswald et al. 2022: its card on the page, and what each binary found, in two sentences.

Fields are described in ``experiments.page.words``: ``{name}`` is a claim of the binary at lab.
"""

from experiments.papers import Paper

FINDINGS = {
    "one_step": (
        "One trained layer of linear attention is one step of gradient descent: its loss is {trained_excess:.2%} "
        "above that of the best step, and both depend on the query alike (cosine of the sensitivities {cosine:.4f}). "
        "Some members wait on a plateau first: {plateau_share:.0%} take twice the median time at the published batch."
    ),
    "weight_maps": (
        "Trained matrices match those written by hand: the entries of A off its diagonal are {a_1:.1%} of those on it "
        "for one layer and {a_3:.1%} for three loops (root mean square). The coefficient γ of three loops is "
        "{gamma_3:.2f} times that of tuned GD++."
    ),
    "multi_step": (
        "Two loops of one layer are two steps of GD++ rather than of plain gradient descent: they have "
        "{looped_2_loss:.4f} times the loss of GD++ and {looped_2_beats_gd:.0%} of the loss of two plain steps. Five "
        "layers with weights of their own depend on the query as GD++ does (median cosine {free_5_cosine:.3f}); their "
        "loss is still falling at the last step (median {free_5_loss:.2f} times that of GD++)."
    ),
    "roll_out": (
        "One trained layer applied fifty times at damping .75 ends at a loss of {level:.4f}, where the paper has "
        "about .045. The paper has it diverge before GD at damping 1 and .875; here it does not (medians: "
        "{sooner_1000:.0f} and {sooner_875:.0f} applications later)."
    ),
    "out_of_distribution": (
        "One layer fails where the gradient step fails: their losses differ by at most {one_step:.3f} in the "
        "logarithm under every shift (.1 is allowed). Two loops differ from GD++ by up to {two_steps:.2f}, and five "
        "layers by {five_targets:.1f} on targets of other size or law, but by {five_far:.2f} only on the largest "
        "inputs, where the token clip bounds both losses."
    ),
    "label_couplings": (
        "On larger and other targets two loops differ from GD++ because their weights couple inputs and labels, too "
        "weakly to matter in training: without these entries the logarithms of the losses differ by {targets:.3f} "
        "instead of {trained_targets:.2f}. They do not explain the difference on larger inputs, which grows to "
        "{inputs:.1f} times as much without them."
    ),
    "curvature": (
        "Two loops that have left the plateau find the γ that minimises the exact loss of GD++ (ratio "
        "{gamma_exact_10:.2f} at context length 10, {gamma_exact_100:.2f} at 100). The paper says that condition "
        "numbers explode for γ above .1; at γ = .15 their median log10 is lower than at .099 (difference "
        "{kappa_15:.2f}), but their mean and their tail are higher."
    ),
    "softmax": (
        "Two softmax heads that have left the plateau reach the best gradient step on centred inputs "
        "({two_heads_centred:.3f} of its loss), while one head stays {one_head_above:.0%} above the gradient step. "
        "{past_plateau:.0%} of members with two heads leave the plateau in time."
    ),
    "layer_norm": (
        "LayerNorm keeps one layer at {one_above:.2f} times the loss of the gradient step and two layers at "
        "{two_above:.2f} times that of GD++. Unlike in the paper's figure, two layers come below two plain gradient "
        "steps ({two_above_gd:.2f} times their loss)."
    ),
    "separate_tokens": (
        "Where inputs and labels are separate tokens, the first layer becomes a copy head: each input gives "
        "{copy_share:.0%} of its attention to its label. The {drops:.0%} of members that get there have {one_step:.3f} "
        "times the loss of one gradient step at the last step, and their attention is still rising."
    ),
    "phase_transitions": (
        "Two heads drop sooner than one: in {two_heads_sooner:.0%} of pairs the member with two does. The sudden "
        "generalisation on a fixed set of tasks does not replicate: the loss on fresh tasks never shoots up, and ends "
        "at {set_generalises:.2f} times that of the gradient step."
    ),
    "grokking": (
        "The late generalisation of Fig. 15 was looked for at three batch sizes and three learning rates. The "
        "largest share of one setting's members that generalise late is {late:.0%}, and {late_and_up:.0%} do so after "
        "getting worse on fresh tasks."
    ),
    "task_sets": (
        "A layer trained on 128 tasks learns them by heart and fails on fresh ones (median loss {few_overfit:.1f}, "
        "above predicting zero). On 8192 tasks it is the gradient step: {most_loss:.3f} times its loss, cosine "
        "{most_cosine:.3f}."
    ),
    "sine": (
        "A network trained whole on sines has a loss near that of meta-learned features with one gradient step, but is "
        "another kernel machine: the values that it smooths are not the labels (squared correlation "
        "{dependent_values:.2f}). After a fortieth of the published tasks its loss is {dependent_loss:.4f} and "
        "still falling."
    ),
    "logistic": (
        "In logistic regression one linear layer is one step on the logistic loss: {one_step_gain:.1%} of its gain, "
        "cosine {one_step_cosine:.4f}. Two layers are nearer to two steps of GD++ on squared errors (cosine "
        "{two_layers_cosine:.4f}) than to two logistic steps."
    ),
    "noisy_labels": (
        "A layer trained without noise follows the GD step tuned without noise when context labels are replaced "
        "(largest relative difference of the losses {follows_gd:.3f}) or noisy ({follows_gd_noise:.3f})."
    ),
    "noisy_labels_retrained": (
        "Two loops trained on corrupted labels are farthest from tuned GD++ where no label is corrupted: there they "
        "have {matches_gdpp:.2f} times its loss (median of the members' largest ratios; at most 1.005 from four "
        "corrupted labels on) and {beats_gd:.2f} times that of two plain gradient steps."
    ),
    "twelve_layers": (
        "After a tenth of the published steps the loss of twelve layers with MLPs is still falling, so nothing is said "
        "about where it ends: it is {beats_gd:.2f} times that of twelve plain gradient steps and {loss:.0f} times that "
        "of tuned GD++ (medians)."
    ),
}

PAPER = Paper(
    "von_oswald",
    "von Oswald et al. 2022",
    "Transformers learn in-context by gradient descent",
    "Do trained transformers take steps of gradient descent on the examples in their prompt?",
    "One layer of linear attention does: its loss is {one_step.trained_excess:.2%} above that of the best "
    "gradient step and its predictions depend on the query as the step's do (cosine {one_step.cosine:.4f}). For deep "
    "networks with MLPs this is open: after a tenth of the published training twelve layers have "
    "{twelve_layers.loss:.0f} times the loss of tuned GD++, and it is still falling.",
    "one_step/one_step",
    {
        "one_step/one_step": (
            "Loss and agreement over training, final loss at six sizes and loss on larger inputs: the trained layer "
            "lies on the best gradient step, except for members that are still on the plateau (four of ten at "
            "N = D = 2)."
        ),
        "one_step/onset": (
            "64 trainings at two batch sizes: some wait on the loss of the best rank-one solution before they drop, "
            "fewer of them at the larger batch."
        ),
        "weight_maps/weight_maps": (
            "Trained matrices beside those built by hand, for one layer and for three loops of one: the same "
            "diagonals and next to nothing elsewhere."
        ),
        "multi_step/looped_2": (
            "Two loops of one layer: the loss falls below that of two gradient steps to that of tuned GD++, while the "
            "coefficient γ rises to its tuned value."
        ),
        "multi_step/looped_10": "Ten loops of one layer: members drop at different times and end near tuned GD++.",
        "multi_step/free_5": (
            "Five layers with weights of their own: they beat five gradient steps, and come down to tuned GD++ late."
        ),
        "roll_out/roll_out": (
            "Loss over fifty applications of one trained layer: it turns up at damping 1 and .875; at damping .75 the "
            "median member falls to the end, as the hand-built layer does."
        ),
        "out_of_distribution/out_of_distribution": (
            "Losses under four kinds of shift: one layer stays on the curve of the gradient step, two loops keep the "
            "shape of the curve of GD++ but not its value, five layers leave it on targets."
        ),
        "label_couplings/label_couplings": (
            "Loss under four kinds of shift of one layer looped twice: without its label couplings it lies on GD++ for "
            "larger targets."
        ),
        "curvature/curvature": (
            "How γ narrows the spread of curvatures, and the γ that trained layers find: it falls with the context "
            "length as the exact theory says."
        ),
        "softmax/softmax": (
            "Loss and agreement over training: one softmax head stays above the gradient step, two reach the step on "
            "centred inputs."
        ),
        "softmax/heads": (
            "Scaled maps of two softmax heads of one member and their sum: neither is diagonal, the sum is."
        ),
        "layer_norm/layer_norm": (
            "With LayerNorm one layer stays above the gradient step and two stay above GD++; on inputs twice as large "
            "both lose less than these do."
        ),
        "separate_tokens/separate_tokens": (
            "Loss of every member, and copying around the drop of the loss: where the first layer is softmax, the "
            "next token's influence and the drop set in together."
        ),
        "separate_tokens/attention": (
            "Attention of the first layer: with sinusoidal positions each token reads the next one, with one-hot "
            "positions the inputs read their labels, as in the weights written by hand."
        ),
        "grokking/grokking": (
            "Loss of every member on its fixed set of tasks and on fresh ones, by batch size and learning rate: where "
            "the set is learned late, fresh tasks are learned at the same time."
        ),
        "phase_transitions/phase_transitions": (
            "Loss of each member: two heads drop sooner and together; on a fixed set of tasks the loss on fresh tasks "
            "rises slowly and never shoots up."
        ),
        "task_sets/task_sets": (
            "Layers trained on 128 to 8192 tasks: few tasks are learned by heart, many give the gradient step with "
            "the excess that theory predicts."
        ),
        "sine/sine": (
            "Predictions, losses, agreement and kernels on sines: the network trained whole has a loss near that of "
            "features with one gradient step, and is another kernel machine."
        ),
        "logistic/logistic": (
            "Loss, agreement and learning rate: one linear layer lies on one logistic step; two agree best with two "
            "steps of GD++ on squared errors."
        ),
        "noisy_labels/noisy_labels": (
            "Loss by the number of replaced labels and by their noise: a layer trained without noise lies on the "
            "gradient step tuned without noise, and both on the closed form."
        ),
        "noisy_labels_retrained/noisy_labels_retrained": (
            "Final loss by the number of corrupted labels of training: trained layers are close to GD++, except for "
            "members that have not left the plateau."
        ),
        "twelve_layers/free_12": (
            "Twelve layers with MLPs after a tenth of the published steps: a little below twelve steps of gradient "
            "descent, far above tuned GD++, and still falling."
        ),
    },
)
