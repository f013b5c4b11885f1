"""What tests share: synthetic runs, machines that are all this one, recorded outputs of tools."""
