"""What a person sees: figures, the page of an answer, and the report of an experiment."""
