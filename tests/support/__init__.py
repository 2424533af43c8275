"""What tests share: cases, references, and programs that they run by themselves."""
