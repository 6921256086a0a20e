"""Real models: `opening` reads them, `tokens` reads text for them, `attachment` reaches their heads."""
