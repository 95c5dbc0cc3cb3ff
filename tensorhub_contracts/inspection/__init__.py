"""Which layout a checkpoint is in: its tensors grouped, judged against every contract, and the verdict."""
