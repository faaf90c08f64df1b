"""What figures and claims of this paper call the conditions of its interventions."""

CONDITIONS = {
    "control": "nothing frozen",
    "ila1_held": "ILA1 frozen",
    "tila2_held": "TILA2 frozen",
    "tla2_held": "TLA2 frozen",
    "cla_held": "CLA frozen",
    "ila1_given": "ILA1 given",
    "attention_lost": "Q, K lost",
    "answer_lost": "V, classifier lost",
}
