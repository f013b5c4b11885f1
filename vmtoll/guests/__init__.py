"""The guests that vmtoll makes: profiles, what a host must have for them, and their libvirt domains."""
