"""What no contract describes: integers that may be weights, tensors that may be scales, methods that only their names tell."""
