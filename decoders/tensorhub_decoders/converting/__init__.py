"""One checkpoint becomes another: what is written is planned and proved from headers, then written in one piece or not at all."""
