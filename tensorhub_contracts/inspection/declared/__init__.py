"""What a checkpoint declares, judged against what contracts require and against the bytes."""
