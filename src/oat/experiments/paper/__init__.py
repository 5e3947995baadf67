"""The numbers that the paper reports, and the claims that it makes."""
