"""Whether an artifact and an image may meet: demand, verdict, and the refusal that a hub answers with 422."""
