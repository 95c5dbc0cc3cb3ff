"""What lies on disk: files, headers, shards and configuration, read and proved consistent. Nothing else opens a checkpoint's files."""
