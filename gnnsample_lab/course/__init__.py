"""The notebooks as things to hand out: their recorded pictures, a static course in HTML, and a server of explorers."""
