"""The four papers: question, answer with its number, order of the figures, and what is seen in each picture."""

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class Paper:
    """What the page says of a paper, beside what its experiments say of themselves.

    ``answer`` names estimates of the ledger as fields (``"{one_step.cosine:.3f}"``, see ``words.worded``). ``captions``
    say what is seen in each picture, by ``figure/picture``; figures, and the pictures of each, are shown in this order.
    """

    key: str  # the folder in experiments/
    source: str
    title: str = ""
    question: str = ""
    answer: str = ""
    picture: str = ""  # of the card, ``figure/picture``; the first one where it is not named
    captions: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def figures(self) -> list[str]:
        """Names of the experiments in the order of the page."""
        return list(dict.fromkeys(name.split("/")[0] for name in self.captions))


VON_OSWALD = Paper(
    "von_oswald",
    "von Oswald et al. 2022",
    "Transformers learn in-context by gradient descent",
    "Do trained transformers take steps of gradient descent on the examples in their prompt?",
    "One layer of linear attention does: its loss is {one_step.trained_excess:.2%} above that of the best gradient step "
    "and its predictions depend on the query as the step's do (cosine {one_step.cosine:.4f}). Deep networks with MLPs do "
    "not at this size: twelve layers end at {twelve_layers.loss:.0f} times the loss of tuned GD++.",
    "one_step/one_step",
    {
        "one_step/one_step": "Loss and agreement over training, final loss at six sizes and loss on larger inputs: the "
        "trained layer lies on the best gradient step, but for single trainings that are late.",
        "one_step/onset": "64 trainings at two batch sizes: some wait on the loss of the best rank-one solution before "
        "they drop, fewer of them at the larger batch.",
        "weight_maps/weight_maps": "Trained matrices beside those built by hand, for one layer and for three loops of "
        "one: the same diagonals and next to nothing elsewhere.",
        "multi_step/looped_2": "Two loops of one layer: the loss falls below that of two gradient steps to that of tuned "
        "GD++, while the coefficient γ rises to its tuned value.",
        "multi_step/looped_10": "Ten loops of one layer: members drop at different times and end near tuned GD++.",
        "multi_step/free_5": "Five layers with weights of their own: they beat five gradient steps, and come down to "
        "tuned GD++ late.",
        "roll_out/roll_out": "Loss over fifty applications of one trained layer: it turns up at damping 1 and .875; at "
        "damping .75 the median member falls to the end, as the hand-built layer does.",
        "out_of_distribution/out_of_distribution": "Losses under four kinds of shift: one layer stays on the curve of "
        "the gradient step, two loops keep the shape of the curve of GD++, five layers leave it.",
        "curvature/curvature": "How γ narrows the spread of curvatures, and the γ that trained layers find: it falls "
        "with the context length as the exact theory says.",
        "softmax/softmax": "Loss and agreement over training: one softmax head stays above the gradient step, two reach "
        "the step on centred inputs.",
        "softmax/heads": "Scaled maps of two softmax heads of one member and their sum: neither is diagonal, the sum is.",
        "layer_norm/layer_norm": "With LayerNorm one layer stays above the gradient step and two stay above GD++; on "
        "inputs twice as large both lose less than these do.",
        "separate_tokens/separate_tokens": "Loss of every member, and copying around the drop of the loss: where the "
        "first layer is softmax, the next token's influence and the drop set in together.",
        "separate_tokens/attention": "Attention of the first layer: with sinusoidal positions each token reads the next "
        "one, with one-hot positions the inputs read their labels, as in the weights written by hand.",
        "phase_transitions/phase_transitions": "Loss of each member: two heads drop sooner and together; on a fixed set "
        "of tasks the loss on fresh tasks creeps up and never shoots up.",
        "task_sets/task_sets": "Layers trained on 128 to 8192 tasks: few tasks are learned by heart, many give the "
        "gradient step with the excess that theory predicts.",
        "sine/sine": "Predictions, losses, agreement and kernels on sines: the network trained whole comes near features "
        "with one gradient step, and is another kernel machine.",
        "logistic/logistic": "Loss, agreement and learning rate: one linear layer lies on one logistic step; two agree "
        "best with two steps of GD++ on squared errors.",
        "noisy_labels/noisy_labels": "Final loss by the number of corrupted labels: trained layers lie on GD++, but for "
        "members that have not left the plateau.",
        "twelve_layers/free_12": "Twelve layers with MLPs: they end where twelve steps of gradient descent are, far above "
        "tuned GD++.",
    },
)

ZHANG_FREI_BARTLETT = Paper(
    "zhang_frei_bartlett",
    "Zhang, Frei & Bartlett 2023",
    "Trained transformers learn linear models in-context",
    "What does one trained layer of linear attention compute, and where does it fail?",
    "Its risk follows a closed form at every training and test length, to {risk.matrix_identity:.1%} of the form's value, "
    "and so do its failures: on inputs three times as large its error is {shifts.limit_3:.0f} times that of predicting "
    "zero, where theory says 64.",
    "risk/risk",
    {
        "risk/risk": "Risk at each test length for five training lengths: every point lies on the closed form, and each "
        "curve flattens at a floor that its training length sets.",
        "risk/rates": "The risk above its floor falls as 1/M, the floor falls with the training length, and for each M "
        "training at N = M is best.",
        "risk/labels": "Risk on noisy and on nonlinear labels: the layer lies on the theorem's curve and tends to the "
        "best linear predictor.",
        "shifts/shifts": "Error under shifted inputs, tasks, contexts and queries: every trained layer lies on its closed "
        "form, while least squares has no error.",
        "random_covariance/random_covariance": "Weights, errors and predictions where each prompt has its own "
        "covariance: the layer learns what theory says, and its error stays at a floor.",
        "gradient_flow/gradient_flow": "Loss, product of the weights and scale u: SGD and Adam come to the optimal "
        "product, at about half of the u of gradient flow or less.",
        "gradient_flow/balance": "Drift of the balance by batch noise: it lies on the prediction at every learning rate "
        "and batch, and moves u towards the value of least gradient noise.",
        "staircase/staircase": "Loss over flow time: separate keys and queries fall from level to level, merged ones "
        "fall once.",
        "staircase/times": "Time of each drop against its prediction from the initial weights: the points lie on the "
        "diagonal.",
        "staircase/ranks": "Loss of heads of rank 1 to 8: the larger the rank, the fewer levels it rests on.",
        "landscape/landscape": "Share of dense starts that reach the optimum, by dimension, scale and prompt length: "
        "small starts lie on the prediction of the race out of the origin.",
        "landscape/minima": "Up to which prompt length the spurious point is a minimum, and where starts end: about half "
        "of them there where it is one.",
        "nonlinear_transformer/beyond_training": "Error of small GPT-2 networks by prompt length: with position "
        "embeddings it jumps beyond the training length, without them it does not.",
        "nonlinear_transformer/nonlinear_transformer": "Error on four distributions beside linear attention and least "
        "squares: three members scatter too much to tell.",
        "nonlinear_transformer/training": "Training error of the same networks, with and without position embeddings.",
    },
)

REDDY = Paper(
    "reddy",
    "Reddy 2023",
    "The mechanistic basis of data dependence and abrupt learning in an in-context classification task",
    "Why does in-context learning set in abruptly, and what decides whether it does?",
    "The network must first learn to answer with some label of the context: holding that part still delays the jump by "
    "{clamping.cla_delays:.0%} of the hold, holding the attention of the first layer by "
    "{clamping.ila1_does_not_delay:.0%}. Many classes and more labels than pairs bring the jump about.",
    "clamping/delays",
    {
        "transition/curves": "Accuracy, loss and progress measures of sixteen members: a long wait, then a jump; answers "
        "with labels of the context (CLA) and attention to labels (TLA2) rise long before.",
        "transition/attention": "Attention half-way through the wait and at the end: an induction head, labels attending "
        "to the item before them and the target to the right label, is there at the end only.",
        "clamping/delays": "Delay of the jump by what was held: the classifier delays it most, the attention of the "
        "first layer not at all.",
        "clamping/clamping": "Accuracy and progress measures while one part is held: while the classifier is held, the "
        "attention of the other parts hardly moves.",
        "data_dependence/classes": "Accuracy in context and in weights by number of classes and burstiness: many classes "
        "and many copies turn the network to the context.",
        "data_dependence/exponent": "Accuracy by rank-frequency exponent: the network turns from the context to the "
        "weights as the exponent grows; the reduced model keeps both.",
        "data_dependence/spread": "Accuracy by spread within a class: the larger it is, the more is learned in context "
        "and the less in weights.",
        "label_count/label_count": "Accuracy of each member by number of labels: with more labels than pairs all learn "
        "in context; with as many as pairs they learn late or not at all.",
        "mixtures/mixtures": "Accuracy over training at four mixtures of data: both solutions are learned and neither is "
        "lost.",
        "reduced_model/curves": "The model of two or three scalars jumps as the network does, and its scalars follow the "
        "flow of the mean-field loss.",
        "reduced_model/measures": "Progress measures around the jump: attention to labels goes ahead with three scalars "
        "and not with two.",
        "reduced_model/equal": "As many labels as pairs: whether the reduced model jumps depends on where its scalars "
        "start.",
        "landscape/landscape": "The loss with more labels than pairs, and the flow on it: a flat shelf that ends in a "
        "cliff.",
        "landscape/waits": "Loss along the flow, and time until the cliff by pairs and labels: it lies on the closed form.",
        "landscape/saddle": "As many labels as pairs: the origin is a saddle, and the time to leave it is predicted from "
        "the start.",
        "landscape/landscape_equal": "The loss with as many labels as pairs: no slope at the origin.",
        "curriculum/curriculum": "Accuracy and onset under three curricula: growing the context length brings the jump "
        "earlier, the other two do not.",
    },
)

DAI = Paper(
    "dai",
    "Dai et al. 2022",
    "Why can GPT learn in-context? Language models implicitly perform gradient descent as meta-optimizers",
    "Is in-context learning an implicit fine-tuning?",
    "Demonstrations and fine-tuning change attention alike (SimAOU {implicit_finetuning.sim_aou_over_floor:.2f} above its "
    "floor), but no less alike when the labels are shuffled (difference "
    "{implicit_finetuning.sim_aou_over_shuffled_labels:.2f}, not resolved from zero in four networks): the similarity is "
    "no evidence that both learn the labels in one way.",
    "implicit_finetuning/accuracy",
    {
        "implicit_finetuning/controls": "Six metrics of similarity, each for fine-tuning as in the paper and for its "
        "controls: with shuffled labels the similarity of attention outputs is as high.",
        "implicit_finetuning/accuracy": "Accuracy of zero-shot, fine-tuning and in-context learning on six tasks: both "
        "gain over zero-shot where the network can learn in context.",
        "implicit_finetuning/demonstrations": "Accuracy by number of demonstrations: with rotary positions in-context "
        "learning overtakes fine-tuning at two to four.",
        "implicit_finetuning/rates": "Metrics over the learning rate of fine-tuning: they depend on it strongly, and so "
        "does the floor.",
        "implicit_finetuning/order": "How much the order of the demonstrations matters: for in-context learning and for "
        "fine-tuning example by example, and not at all for one full-batch step.",
        "dual_form/relaxed": "Relaxed attention beside the softmax head by layer: directions differ, and softmax shrinks "
        "what the query gets by itself.",
        "layers/layers_rotary": "Similarities by layer, rotary positions: none rises clearly with depth.",
        "layers/layers_learned": "Similarities by layer, learned positions: none rises clearly with depth.",
        "momentum_language_model/loss": "Validation loss of language models: momentum lowers it, and so does a shift by "
        "one token, by a little less.",
        "momentum_language_model/attention": "Where attention looks: with any local mixer it leaves the recent tokens to "
        "the mixer.",
        "momentum_icl/icl": "Accuracy on repeated strings and on pairs: momentum learns them sooner, and so does the mean "
        "of the last four values.",
        "momentum_regression/joint": "Momentum in one linear layer: what it adds to the loss is the closed form of weight "
        "decay, and the layer stays nearer to a plain step than to heavy ball.",
        "momentum_regression/alternating": "Two layers on alternating tokens: without a mixer they predict zero, with "
        "one some members reach the gradient step.",
        "pretrain/demonstrations": "Accuracy of the pretrained networks by number of demonstrations: with rotary "
        "positions it grows on most tasks, with learned ones in one of three networks.",
        "pretrain/curriculum": "Loss through the stages of pre-training beside the entropy of the label set: most "
        "networks get below it in the last stages.",
    },
)

PAPERS = {paper.key: paper for paper in (VON_OSWALD, ZHANG_FREI_BARTLETT, REDDY, DAI)}
