"""A user's own folder: what it holds, and the machines that virsh, qm and ssh know."""
