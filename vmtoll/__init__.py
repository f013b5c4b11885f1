"""vmtoll: what a KVM guest costs against bare metal. `cli` and `commands` join the other packages into a program."""
