"""What the paper reports and claims."""
