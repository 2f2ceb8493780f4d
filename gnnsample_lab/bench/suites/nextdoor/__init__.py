"""NextDoor's tables and figures."""
