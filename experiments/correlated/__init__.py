"""Contexts whose inputs are correlated: after Letey, Lu, Pehlevan & Zavatone-Veth 2026, and beyond it."""
