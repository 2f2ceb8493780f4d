"""What surrounds the explorers in a lesson: guesses, answers' feedback, steppers and listings of code that runs."""
