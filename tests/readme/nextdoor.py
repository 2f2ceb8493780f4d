"""What the rows of NextDoor say of their records."""
