# Installation, find_package() files, pkg-config file, relocatable folder. (Filled in by the packaging commit.)
