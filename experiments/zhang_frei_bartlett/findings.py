"""Zhang, Frei & Bartlett 2023: its card on the page, and what each binary found, in two sentences.

Fields are described in ``experiments.page.words``: ``{name}`` is a claim of the binary at lab.
"""

from experiments.papers import Paper

FINDINGS = {
    "risk": (
        "Trained at one prompt length N and tested at any other M, a layer has the risk of the closed form: its "
        "largest deviation is {matrix_identity:.2%} of the risk at the shorter length. The risk falls as 1/M to a "
        "floor (exponent {context_rate:.3f}), and of the lengths trained here any N other than M gives at least "
        "{best_length_identity:.3f} times the risk of N = M."
    ),
    "shifts": (
        "The scale of the task does not matter to a trained layer (largest over smallest error "
        "{weights_invariant:.3f}), the scale of the inputs does: at three times the inputs its error tends to "
        "{limit_3:.1f} times that of predicting zero, where theory says 64. Contexts from one orthant raise the error "
        "by a factor of {orthants_fail:.1f}; least squares has no error on any of these."
    ),
    "random_covariance": (
        "Where every prompt has its own covariance, no layer of linear attention solves all prompts: its error tends "
        "to {limit_1:.4f} times that of predicting zero (theory 1/3), and at nine times the variances it is "
        "{worse_than_zero_9:.0f} times that on the longest prompts tested. The slope of its predictions on the answers "
        "is {slope:.3f}, two thirds and not the one third of the paper."
    ),
    "gradient_flow": (
        "Gradient flow ends at the optimal weights, at the scale u that theory predicts (ratio {flow_scale:.4f}); SGD "
        "and Adam come to nearly the same product of weights at {sgd_scale:.2f} and {adam_scale:.2f} of that scale. "
        "The noise of SGD's batches moves u at the rate of a closed form (measured over predicted {drift:.3f}; after a "
        "long run at a rate of .02 u is {course:.2f} times the predicted one)."
    ),
    "staircase": (
        "Separate keys and queries learn one principal component after another: the loss rests on the levels of a "
        "closed form, to {levels:.0e} of the gain, and the initial weights predict the time of each drop (predicted "
        "over measured {time_2:.3f} for the second). With merged matrices the loss drops once; heads of rank two rest "
        "longer on every second level in {rank_2:.0%} of the pairs of levels (median)."
    ),
    "landscape": (
        "From dense initial weights gradient flow may miss the optimum on short prompts: in {minima_attract:.0%} of "
        "the settings with a spurious minimum more than a tenth of the large starts end in it, and none where it is a "
        "saddle. The initial weights predict where {race_each:.0%} of the starts of the smallest scale end, and "
        "{race_ends:.0%} at scale .5."
    ),
    "dense_starts": (
        "From initial weights of usual size the share of flows that reach the optimum grows with the prompt, to "
        "{long_prompts:.0%} on the longest ones. From the spurious minimum {sgd_stays:.0%} of sixteen trainings by SGD "
        "and {adam_stays:.0%} of sixteen by Adam reach the optimum."
    ),
    "theorems": (
        "The flow ends at the optimal weights also from ten times the largest scale that Theorem 4.1 allows. The "
        "excess loss falls at the rate of the smallest curvature (ratio {rate:.3f}); the constant of Lemma 5.4 is "
        "smaller by a factor of {loose:.0f} (mean)."
    ),
    "nonlinear_transformer": (
        "With position embeddings the error of small GPT-2 networks rises beyond the training length (log10 of the "
        "ratio {rises_identity:.1f}), without them it does not ({no_rise_without_identity:.2f}), and neither does it "
        "where every row is trained, at random offsets ({offset_identity:.2f}). Trained rows that are reused lower "
        "that logarithm by {reused_identity:.1f}."
    ),
}

PAPER = Paper(
    "zhang_frei_bartlett",
    "Zhang, Frei & Bartlett 2023",
    "Trained transformers learn linear models in-context",
    "What does one trained layer of linear attention compute, and where does it fail?",
    "Its risk follows a closed form at every training and test length, within {risk.matrix_identity:.1%}, "
    "and so do its failures: on inputs three times as large its error is {shifts.inputs_fail:.0f} times "
    "that of predicting zero (64 for infinitely long prompts).",
    "risk/risk",
    {
        "risk/risk": (
            "Risk at each test length for five training lengths: every point lies on the closed form, and each curve "
            "flattens at a floor that its training length sets."
        ),
        "risk/rates": (
            "The risk above its floor falls as 1/M, the floor falls with the training length, and for each M training "
            "at N = M is best."
        ),
        "risk/labels": (
            "Risk on noisy and on nonlinear labels: the layer lies on the theorem's curve and tends to the best "
            "linear predictor."
        ),
        "shifts/shifts": (
            "Error under shifted inputs, tasks, contexts and queries: every trained layer lies on its closed form, "
            "while least squares has no error."
        ),
        "random_covariance/random_covariance": (
            "Weights, errors and predictions where each prompt has its own covariance: the layer learns what theory "
            "says, and its error stays at a floor."
        ),
        "gradient_flow/gradient_flow": (
            "Loss, product of the weights and scale u: SGD and Adam come to the optimal product, at about half of the "
            "u of gradient flow or less."
        ),
        "gradient_flow/balance": (
            "Drift of the balance by batch noise: it lies on the prediction at every learning rate and batch, and "
            "moves u towards the value of least gradient noise."
        ),
        "staircase/staircase": (
            "Loss over flow time: separate keys and queries fall from level to level, merged ones fall once."
        ),
        "staircase/times": (
            "Time of each drop against its prediction from the initial weights: the points lie on the diagonal."
        ),
        "staircase/ranks": "Loss of heads of rank 1 to 8: the larger the rank, the fewer levels it rests on.",
        "landscape/landscape": (
            "Share of dense starts that reach the optimum, by dimension, scale and prompt length: small starts lie on "
            "the prediction made from their initial weights."
        ),
        "landscape/minima": (
            "Up to which prompt length the spurious point is a minimum, and where starts end: about half of them end "
            "in it where it is one."
        ),
        "theorems/theorems": (
            "Excess loss from starts up to ten times the proven bound, the constant of Lemma 5.4, the spectrum of "
            "Lemma 5.1, and the flow of Theorem 4.5."
        ),
        "dense_starts/dense_starts": (
            "Share of flows at the optimum by scale and prompt length, and trainings from the spurious minimum and "
            "from dense starts."
        ),
        "nonlinear_transformer/beyond_training": (
            "Error of small GPT-2 networks by prompt length: with position embeddings it jumps beyond the training "
            "length; without them, and with rows that were all trained, it does not."
        ),
        "nonlinear_transformer/nonlinear_transformer": (
            "Error on four distributions beside linear attention and least squares: five members scatter too much for "
            "a conclusion."
        ),
        "nonlinear_transformer/training": (
            "Training error of the same networks, with and without position embeddings."
        ),
    },
)
