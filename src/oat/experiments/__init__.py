"""The paper's tables and figures as named values, from demonstrations to print."""
