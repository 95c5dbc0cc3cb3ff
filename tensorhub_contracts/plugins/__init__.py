"""Who else brings contracts and decoders: found, loaded one by one, and settled. Nothing else imports foreign code."""
