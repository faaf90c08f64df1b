"""Dai et al. 2022: its card on the page, and what each binary found, in two sentences.

Fields are described in ``experiments.page.words``: ``{name}`` is a claim of the binary at lab.
"""

from experiments.papers import Paper

FINDINGS = {
    "dual_form": (
        "The identities of the dual form hold to rounding ({relaxed:.0e} for relaxed heads, {softmax:.0e} for softmax "
        "heads). But relaxed attention does not stand for the softmax heads of trained networks: the cosine of their "
        "outputs is {relaxed_direction:.2f}, where .9 was asked."
    ),
    "implicit_finetuning": (
        "In-context learning and fine-tuning change attention outputs alike: SimAOU is {sim_aou_over_floor:.2f} above "
        "its floor and {sim_aou_over_wrong_task:.2f} above that of fine-tuning on another task, but only "
        "{sim_aou_as_shuffled_labels:.3f} above that on shuffled labels. Put into the zero-shot run, fine-tuning's "
        "change gives {fine_tuning_carries:.0%} of the accuracy that demonstrations add; scaled up to the size of "
        "theirs (three to five times), it gives {fine_tuning_carries_less:.0%} and makes right answers less probable."
    ),
    "layers": (
        "From the first of eight layers to the last SimAOU of fine-tuning changes by {sim_aou_rises:.2f}, which is "
        "{sim_aou_rises_above_floor:.2f} more than its floor and {sim_aou_rises_more_than_noise:.2f} more than for "
        "noise of equal size; whether any of these is a rise of .1 is not resolved."
    ),
    "momentum_language_model": (
        "Early in training momentum in attention lowers the perplexity of small language models, and so does any local "
        "mixer; the gap then shrinks, to {gain_whole:.1%} in the end. Its limit by extrapolation is "
        "{gap_remains:+.3f} nats a byte, and momentum ends {beats_local_mixers:.3f} nats ahead of the best local mixer."
    ),
    "momentum_icl": (
        "With momentum small networks learn to label words from the context in {sooner_pairs:.0%} of the steps. A "
        "local mixer of equal cost does too: momentum takes {beats_local_mixers_pairs:.2f} of its steps, which leaves "
        "open which is sooner, and in the end their accuracies differ by {no_more_than_local_mixers_pairs:+.3f}."
    ),
    "momentum_regression": (
        "In one linear layer momentum is weight decay and not descent with momentum: it adds to the loss what the "
        "closed form says (ratio {penalty:.2f}), and the layer is {analogy:.1f} times as far from heavy ball as from "
        "one plain step. Where positions are missing {shift_leaves:.0%} of the trainings learn to pair labels with "
        "inputs by a shift, and {momentum_leaves:.0%} by momentum, none without."
    ),
    "momentum_tasks": (
        "Through the whole curriculum, networks with momentum come to the mixture in {sooner:.0%} of the steps of "
        "those without, but on six held-out tasks they are not more accurate: {better:+.3f} (published: +.028), and "
        "{no_more_than_local_mixers:+.3f} against those with the better of two local mixers."
    ),
    "pretrain": (
        "{gated_rotary:.0%} of the networks with rotary positions and {gated_sinusoidal:.0%} of those with sinusoidal "
        "ones learn in context (demonstrations gain .1 on four of six held-out tasks). Without demonstrations they are "
        "{zero_shot_rotary:.2f} and {zero_shot_sinusoidal:.2f} above chance, in tasks drawn so that meanings alone "
        "answer within .25 of chance."
    ),
}

PAPER = Paper(
    "dai",
    "Dai et al. 2022",
    "Why can GPT learn in-context? Language models implicitly perform gradient descent as meta-optimizers",
    "Is in-context learning an implicit fine-tuning?",
    "In part. Both change attention outputs alike (SimAOU is {implicit_finetuning.sim_aou_over_floor:.2f} above its "
    "floor), but fine-tuning on shuffled labels does so as much (difference "
    "{implicit_finetuning.sim_aou_as_shuffled_labels:+.3f}); fine-tuning's change, put into the zero-shot run as it "
    "is, carries {implicit_finetuning.fine_tuning_carries:.0%} of the accuracy that demonstrations add.",
    "implicit_finetuning/controls",
    {
        "implicit_finetuning/controls": (
            "Metrics of similarity, each for fine-tuning as in the paper and for its controls, which change attention "
            "outputs as much in every layer."
        ),
        "implicit_finetuning/by_task": (
            "Tables 2 to 5 of the paper by task: each metric of fine-tuning beside its base rate, floor or random "
            "value."
        ),
        "implicit_finetuning/carried": (
            "What attention outputs do in the zero-shot run, put in layer by layer: the accuracy that those of "
            "in-context learning add, and those of fine-tuning, as they are and with their change made as large."
        ),
        "implicit_finetuning/accuracy": (
            "Accuracy of zero-shot, fine-tuning and in-context learning on six tasks: both gain over zero-shot where "
            "the network can learn in context."
        ),
        "implicit_finetuning/demonstrations": (
            "Accuracy by number of demonstrations: with rotary positions in-context learning overtakes fine-tuning at "
            "two in the mean, in every network that learns in context at four."
        ),
        "implicit_finetuning/rates": (
            "Metrics over the learning rate of fine-tuning: they depend on it strongly, and so does the floor."
        ),
        "implicit_finetuning/order": (
            "How much the order of the demonstrations matters: for in-context learning and for fine-tuning example by "
            "example, and not at all for one full-batch step."
        ),
        "dual_form/relaxed": (
            "Relaxed attention beside the softmax head by layer: directions differ, and softmax shrinks what the "
            "query gets by itself."
        ),
        "layers/layers_rotary": (
            "Similarities by layer, rotary positions: SimAOU is largest above the middle of eight layers, SimAM "
            "falls, and Kendall's correlation is that of noise."
        ),
        "layers/layers_sinusoidal": "Similarities by layer, sinusoidal positions.",
        "layers/layers_learned": "Similarities by layer, learned positions.",
        "momentum_language_model/loss": (
            "Validation loss of language models with momentum and with local mixers, less that without any."
        ),
        "momentum_language_model/attention": (
            "Where attention looks: with any local mixer it leaves the recent tokens to the mixer."
        ),
        "momentum_icl/icl": (
            "Accuracy on repeated strings and on pairs: momentum learns them sooner, and so does the mean of the last "
            "four values."
        ),
        "momentum_regression/joint": (
            "Momentum in one linear layer: what it adds to the loss is the closed form of weight decay, and the layer "
            "stays nearer to a plain step than to heavy ball."
        ),
        "momentum_regression/alternating": (
            "Two layers on alternating tokens: without a mixer they predict zero, with one some members reach the "
            "gradient step."
        ),
        "momentum_tasks/tasks": (
            "Accuracy on the six held-out tasks with momentum, with local mixers and without any, and the steps that "
            "each network takes to the mixture."
        ),
        "momentum_language_model/perplexity": (
            "Validation perplexity against steps, bytes and seconds, and the gap between momentum and none: it peaks "
            "early and shrinks."
        ),
        "pretrain/demonstrations": (
            "Accuracy of the pretrained networks by number of demonstrations, beside chance, meanings of labels alone "
            "and Bayes; thin lines are networks that fail the gate."
        ),
        "pretrain/curriculum": (
            "Loss through the stages of pre-training, a line for each network, grey where it fails the gate; in the "
            "mixture beside what guessing among the labels costs."
        ),
    },
)
