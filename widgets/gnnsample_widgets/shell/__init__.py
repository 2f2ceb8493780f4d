"""What every explorer is made of: controls, plot panels, recipes, messages, still pictures and code to take away."""
