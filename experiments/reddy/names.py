"""What figures and claims of this paper call the conditions of its interventions."""

CONDITIONS = {
    "control": "nothing held",
    "ila1_held": "ILA1 held",
    "tila2_held": "TILA2 held",
    "tla2_held": "TLA2 held",
    "cla_held": "CLA held",
    "ila1_given": "ILA1 given",
    "attention_lost": "Q, K lost",
    "answer_lost": "V, classifier lost",
}
